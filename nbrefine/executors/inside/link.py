"""The tests' end of the connection: asks the code's process, and believes nothing it says.

What comes is checked for its form; anything else ends the check. An answer holds a value, the
arguments that were changed in place, classes not told of before, and the fields of the objects
that took part; fields of any other object are not taken, so that none can be made equal to what
it is about to be compared with.
"""

from __future__ import annotations

import builtins
import collections
import socket
import sys
from collections.abc import Iterator
from typing import Any

from . import flows, frames, proxies
from .clock import Clock, Overdue
from .kinds import CannotSend, Malformed, Unsendable, string, whole
from .lending import Lent, refuse
from .peer import Gone, Peer
from .plain import Packer, Unpacker, become, is_container

HELD = 50
"""How many containers that the code's objects hold are watched for changes by the tests."""

BROKEN = "the code broke the connection it is asked over"

PLACE = "_nbrefine_place"
"""The attribute of an exception of the code that tells where in it it was raised."""


class Reference:
    """Stands for an object of the code in a message, where no proxy does."""

    def __init__(self, number: int) -> None:
        self.number = number


class Link(Peer):
    """Speaks with the code's process.

    Parameters
    ----------
    calls: the connection.
    clock: told while the other process is at work.
    """

    def __init__(self, calls: socket.socket, clock: Clock) -> None:
        super().__init__(calls)
        self.quiet = False
        self.dead = ""
        """Why nothing more can be asked, or ""."""
        self.known: set[str] = set()
        """The classes of the code that the tests name."""
        self._clock = clock
        self._settled = 0
        self._lent = Lent()
        self._made: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._fields: dict[int, Any] = {}
        self._touched: set[int] = set()
        self._held: dict[int, tuple[Any, bytes]] = {}

    def request(self, operation: str, /, *arguments: Any, **named: Any) -> Any:
        """Ask for an operation, and give its value or raise what it raised.

        Raises
        ------
        CannotSend: an argument cannot be sent.
        Overdue: the case's time was over before there was an answer.
        Gone: there is no such process any more, or it cannot be understood.
        """
        if self.dead:
            raise Gone(self.dead)
        if self.quiet:
            raise RuntimeError("the code is not asked for the text of a value")
        if self._held and operation != "become":
            self._give_back()
        packer = Packer(self._lend)
        outer, self._touched = self._touched, set()
        touched, waiting = self._touched, self._clock.waiting
        try:
            content = packer.items((*arguments, *named.values()))
            self._clock.waiting = True
            message = self.ask(operation, content, list(named))
        except (Unsendable, ValueError) as error:
            raise CannotSend(str(error)) from None
        except Malformed:
            self.broken()
        except Gone as error:
            self.dead = str(error)
            raise
        except BaseException:  # the rest of an answer may be on its way
            self.dead = "a question was left without its answer"
            raise
        finally:
            self._touched = outer
            self._clock.waiting = waiting
        if self._clock.over:
            raise Overdue
        return self._received(message, packer.held, touched)

    def _give_back(self) -> None:
        """Tell of containers that objects of the code hold and the tests have changed."""
        for number, (value, before) in list(self._held.items()):
            now = self._text(value)
            if now != before:
                self._held[number] = (value, now)
                self.request("become", Reference(number), value)

    def _text(self, value: Any) -> bytes:
        outer, self._touched = self._touched, set()  # to look at objects is not to use them
        try:
            return frames.pack(Packer(self._lend).pack(value))
        except (Unsendable, ValueError) as error:
            raise CannotSend(str(error)) from None
        finally:
            self._touched = outer

    def settle(self) -> None:
        """Let an interrupt that was asked for arrive before anything else is asked."""
        if self.dead or self._settled == self._clock.interrupts:
            return
        self._clock.start_grace()
        try:
            self.request("settle", self._clock.interrupts)
            self._settled = self._clock.interrupts
        except (Gone, Overdue) as error:
            self.dead = str(error) or self.dead
        except BaseException:  # noqa: BLE001  an exception of the code is no answer to this
            self.dead = BROKEN
        finally:
            self._clock.stop()

    def broken(self) -> None:
        """End what cannot be understood."""
        self.dead = BROKEN
        raise Gone(self.dead) from None

    def fields(self, number: int) -> dict[str, Any] | None:
        """Give the fields of an object as they were last told; None where they were not."""
        packed = self._fields.get(number)
        if packed is None:
            return None
        try:
            found = Unpacker(self._take).unpack(packed)
        except Exception:  # noqa: BLE001  whatever it is, it is no fields
            return None
        return found if type(found) is dict else None

    # What goes there

    def _lend(self, packer: Packer, value: Any) -> list[Any]:
        """Give the list for a value that is not plain: an object of the code, or of the tests."""
        kind = type(value)
        if isinstance(kind, proxies.CodeClass):
            number = proxies.number(value)
            self._touched.add(number)
            return ["object", number]
        if kind is Reference:
            return ["object", value.number]
        if id(value) in self._numbers:
            return ["object", self._numbers[id(value)]]
        if id(kind) in self._numbers and issubclass(kind, tuple):
            return ["named", self._numbers[id(kind)], packer.items(value)]
        return self._lent.form(value)

    # What comes from there

    def _received(self, message: list[Any], held: list[Any], touched: set[int]) -> Any:
        """Take an answer in, and give its value or raise its exception."""
        try:
            kind, _, told, contents, classes, fields, place = message
            self._describe(classes)
            unpacker = Unpacker(self._take, held)
            value = unpacker.unpack(told)
            for number, content in contents:
                unpacker.refill(held[whole(number)], content)
            self._note(fields, touched)
            if kind == "raise":
                if not isinstance(value, BaseException):
                    raise Malformed("what was raised is no exception")  # noqa: TRY301
                setattr(value, PLACE, _line(place))
        except Exception as error:
            if hasattr(error, PLACE):  # of a `__hash__` of the code's own
                raise
            self.broken()
        if kind == "raise":
            raise value
        return value

    def _take(self, unpacker: Unpacker, data: list[Any]) -> Any:
        """Give what stands here for an object of the code, or the tests' own that came back."""
        tag, number = data[0], data[1]
        if tag == "error":
            return self._taken_exception(unpacker, data)
        if tag in ("callable", "items", "instance"):
            return self._lent.object(tag, number)
        if tag == "class":
            return self._made[whole(number)]
        if tag == "held":
            return self._take_held(whole(number), unpacker.unpack(data[2]))
        if tag == "named":
            return tuple.__new__(self._class(number, tuple), unpacker.items(data[2]))
        if whole(number) not in self._made:
            made = self._make(tag, data)
            self._made[number] = made
            self._numbers[id(made)] = number
        return self._made[number]

    def _take_held(self, number: int, value: Any) -> Any:
        """Give a container that an object of the code holds: the same one each time."""
        if not is_container(value):
            raise Malformed("no container where one must be")
        held = self._held.pop(number, (value, b""))[0]
        if held is not value and type(held) is type(value):
            become(held, value)
            value = held
        if len(self._held) >= HELD:
            del self._held[next(iter(self._held))]
        self._held[number] = (value, self._text(value))
        return value

    def _make(self, tag: str, data: list[Any]) -> Any:
        number = data[1]
        reference = Reference(number)
        if tag == "object":
            return proxies.create(self._class(data[2], proxies.Code), number)
        if tag == "function":
            name = string(data[2])
            function = proxies.CodeFunction(self, number, name)
            if not data[3]:
                return function
            self._numbers[id(function)] = number
            return flows.coroutine_function(self, function, name)
        if tag == "iterator":
            items: Any = flows.generate(self, reference)
            return items if data[2] else flows.CodeIterator(items, string(data[3]))
        if tag == "coroutine":
            return flows.coroutine(self, reference)
        raise Malformed(f"there is no {tag!r}")

    def _class(self, number: Any, base: type) -> Any:
        kind = self._made[whole(number)]
        if not (isinstance(kind, type) and issubclass(kind, base)):
            raise Malformed("no class of that kind")
        return kind

    def _describe(self, classes: list[Any]) -> None:
        """Make the classes that are told of for the first time."""
        for number, told, home, bases, special, error, fields in classes:
            if whole(number) in self._made:
                raise Malformed("a class that is known")
            name, module = string(told), string(home)
            parents = [self._made[whole(base)] for base in bases if base in self._made]
            made: Any
            if fields is not None:
                made = self._named_tuple(name, *fields)
            elif error is not None:
                made = _exception_class(name, module, parents, string(error))
            else:
                own = tuple(kind for kind in parents if isinstance(kind, proxies.CodeClass))
                methods = {string(item) for item in special}
                made = proxies.code_class(
                    self, name, module, own, methods, known=name in self.known
                )
            self._made[number] = made
            self._numbers[id(made)] = number

    def _named_tuple(self, name: str, fields: list[Any], defaults: list[Any]) -> type:
        """Make a named tuple that is a tuple here; its own methods are the code's."""
        given = Unpacker(_never).items(defaults)
        names = [string(field) for field in fields]
        base = collections.namedtuple(name, names, rename=True, defaults=given)  # type: ignore[misc]  # noqa: PYI024

        def get(this: Any, attribute: str) -> Any:
            return proxies.asked(self, this, attribute)

        return type(name, (base,), {"__slots__": (), "__getattr__": get})

    def _taken_exception(self, unpacker: Unpacker, data: list[Any]) -> BaseException:
        _, module, name, base, number, arguments, fields, text, own = data
        if own is not None:
            lent: BaseException = self._lent.object("error", own)
            return lent
        if number is not None:
            kind = self._class(number, BaseException)
        else:
            kind = _standard_exception(string(module), string(name), string(base))
        given = unpacker.items(arguments)
        try:
            error: BaseException = kind(*given)
        except Exception:  # noqa: BLE001  some want other arguments
            error = kind.__new__(kind)
            error.args = tuple(given)
        if number is not None:
            error.__dict__["_nbrefine_text"] = string(text)
            for field, value in fields:
                error.__dict__[string(field)] = unpacker.unpack(value)
        return error

    def _note(self, fields: list[Any], touched: set[int]) -> None:
        """Take the fields of objects that are new, and of those that took part."""
        reached, more = set(), touched
        while more:
            reached |= more
            held = (item for number in more for item in _mentioned(self._fields.get(number)))
            more = set(held) - reached
        for number, packed in fields:
            if whole(number) not in self._fields or number in reached:
                self._fields[number] = packed

    # What it asks for in between

    def answer(self, message: list[Any], data: bytes) -> bytes:
        """Serve a call of something that the tests passed to the code."""
        try:
            _, count, operation, (content, (classes, fields)), names = message
            self._describe(classes)
            arguments = Unpacker(self._take).items(content)
            self._note(fields, set())
            split = len(arguments) - len(names)
            named = dict(zip(map(string, names), arguments[split:]))  # noqa: B905
            work = self._lent.work(operation, arguments[:split], named)
        except Exception as error:  # noqa: BLE001  whatever it is, it was no call
            raise Malformed(str(error)) from None
        try:
            if self._clock.over:  # code that calls again and again would never be waited for
                raise Overdue  # noqa: TRY301
            self._clock.waiting = False
            value = work()
            self._clock.waiting = True
            kind, told = "ok", Packer(self._lend).pack(value)
        except BaseException as error:  # it goes through the code and comes back
            self._clock.waiting = True
            if isinstance(error, Gone):
                raise
            shown = KeyboardInterrupt() if isinstance(error, Overdue) else error
            kind, told = "raise", self._lend(Packer(refuse), shown)
        return frames.pack([kind, count, told, None, None])


def _line(place: Any) -> tuple[str, int]:
    return ("", 0) if place is None else (string(place[0]), whole(place[1]))


def _never(unpacker: Unpacker, data: list[Any]) -> Any:
    raise Malformed("it is not plain")


def _mentioned(packed: Any) -> Iterator[int]:
    """Give the objects that packed fields hold."""
    if type(packed) is list:
        if len(packed) == 3 and packed[0] == "object" and type(packed[1]) is int:
            yield packed[1]
        for item in packed:
            yield from _mentioned(item)


def _exception_class(name: str, module: str, parents: list[Any], base: str) -> type:
    above = tuple(kind for kind in parents if issubclass(kind, BaseException))
    if not above:
        above = (_standard_exception(module, name, base),)
        if above[0].__name__ == name and above[0].__module__ == module:
            return above[0]
    body = {"__module__": module, "__str__": _told}
    return type(name, above, body)


def _told(error: Any) -> str:
    text = error.__dict__.get("_nbrefine_text")
    return text if type(text) is str else BaseException.__str__(error)


def _standard_exception(module: str, name: str, base: str) -> type[BaseException]:
    """Give a standard class of exceptions that is loaded here, or else the built-in one."""
    found = (
        getattr(sys.modules.get(module), name, None)
        if module.partition(".")[0] in _STANDARD
        else None
    )
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        found = getattr(builtins, base)
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        raise Malformed("no class of exceptions")
    return found


_STANDARD = set(getattr(sys, "stdlib_module_names", sys.builtin_module_names)) - {"__main__"}
