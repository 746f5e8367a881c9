"""Connections and servers that a fork must leave alone, and those that nobody misses."""

from __future__ import annotations

import pytest

from tests.kernel.branching.told import Process, kinds


def test_a_connection_forbids_a_fork_and_its_peer_is_named(process: Process, web: str) -> None:
    host, port = web.split(":")
    told = process(
        f"""
        import socket
        opened = socket.create_connection(("{host}", {port}))
        told.extend(scan())
        """
    )
    assert kinds(told) == [("connection", "refuse")]
    assert web in told[0]["detail"]


CLIENTS = {
    "http.client": """
import http.client
client = http.client.HTTPConnection("{web}")
client.request("GET", "/")
client.getresponse().read()
""",
    "httpx2": """
import httpx2
client = httpx2.Client()
client.get("http://{web}/")
""",
    "httpx2 async": """
import httpx2
client = httpx2.AsyncClient()
loop.run_until_complete(client.get("http://{web}/"))
""",
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_kept_http_connection_forbids_nothing(process: Process, web: str, client: str) -> None:
    told = process(CLIENTS[client].format(web=web) + "told.extend(scan())")
    assert kinds(told) == [("http", "repaired")]
    assert web in told[0]["detail"]


def test_a_connection_that_its_peer_has_closed_is_no_hazard(process: Process) -> None:
    told = process(
        """
        import socket, subprocess
        server = socket.create_server(("127.0.0.1", 0))
        opened = socket.create_connection(server.getsockname())
        server.accept()[0].close()
        opened.recv(1)
        server.close()
        told.extend(scan())
        """
    )
    assert told == []


def test_a_server_and_its_client_in_the_same_process_are_lost(process: Process) -> None:
    told = process(
        """
        import socket
        server = socket.create_server(("127.0.0.1", 0))
        opened = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        told.extend(scan())
        """
    )
    assert kinds(told) == [("server", "lost"), ("connection", "lost"), ("connection", "lost")]


def test_sockets_of_the_kernel_and_of_nbrefine_are_no_hazards(process: Process) -> None:
    told = process(
        """
        import socket, tempfile
        kept = []
        for path in (app.ip + "-7", "nbrefine-x/kernel-1"):
            folder = tempfile.mkdtemp(prefix="nbrefine-")
            app.ip, app.shell_port = folder + "/kernel", 7
            server = socket.socket(socket.AF_UNIX)
            server.bind(folder + "/kernel-7")
            server.listen()
            client = socket.socket(socket.AF_UNIX)
            client.connect(folder + "/kernel-7")
            kept += [server, client, server.accept()[0]]
            app.ip = "/nowhere/else"
        kept += socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        told.extend(scan())
        """
    )
    assert told == []
