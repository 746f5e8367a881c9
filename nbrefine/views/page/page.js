
"use strict";
(() => {
  const scenes = [...document.querySelectorAll(".scene")];
  const button = (name) => document.getElementById(name);
  const status = button("status");
  const revealed = new Set();
  let here = null;
  let hiding = false;
  let printing = false;

  const title = (scene) => scene.querySelector("h3").innerText.replace(/\s+/g, " ").trim();
  const open = (scene) => !hiding || revealed.has(scene);
  const shown = () => scenes.filter((scene) => !scene.hidden);

  // The bar grows with its words, and must not lie over the scene that is gone to.
  function say(words) {
    status.textContent = words;
    document.documentElement.style.scrollPaddingTop = `${button("bar").offsetHeight + 24}px`;
  }

  // What is to be guessed, and all that would tell it: the scenes behind it, the contents, the end.
  function update() {
    scenes.forEach((scene, place) => {
      scene.hidden = place > 0 && !open(scenes[place - 1]);
      scene.classList.toggle("closed", !open(scene));
      const asked = scene.querySelector(":scope > .reveal");
      if (open(scene)) asked?.remove();
      else if (!asked) scene.querySelector(".outcome:not(h3 *)").before(reveals(scene));
    });
    for (const act of document.querySelectorAll(".act")) {
      const inside = [...act.querySelectorAll(".scene")];
      act.classList.toggle("closed", !inside.every(open));
      act.hidden = inside.length ? inside.every((scene) => scene.hidden) : !scenes.every(open);
    }
    document.body.classList.toggle("closed-page", !scenes.every(open));
    button("hide").textContent = hiding ? "Show outcomes" : "Hide outcomes";
  }

  function reveals(scene) {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "reveal";
    made.textContent = "Reveal what happened";
    made.addEventListener("click", () => reveal(scene));
    return made;
  }

  function reveal(scene) {
    revealed.add(scene);
    update();
    scene.querySelector("h3").focus({ preventScroll: true });
    say(`${title(scene)}. ${scenes.every(open) ? "All outcomes are shown." : "More follows."}`);
  }

  function hide(on) {
    hiding = on;
    revealed.clear();
    update();
    if (on) go(0, "Outcomes are hidden; Enter or Space reveals one. ");
    else say("Outcomes are shown.");
  }

  // Where a reader is: at the scene that has the focus, or was gone to and is still in view.
  function current() {
    const seen = shown();
    const holding = document.activeElement?.closest(".scene");
    if (holding) return seen.indexOf(holding);
    const box = here?.getBoundingClientRect();
    if (box && box.bottom > 0 && box.top < window.innerHeight) return seen.indexOf(here);
    const middle = window.innerHeight / 2;
    const below = seen.findIndex((scene) => scene.getBoundingClientRect().bottom > middle);
    if (below < 0) return seen.length - 1;
    return seen[below].getBoundingClientRect().top > middle ? below - 1 : below;
  }

  function go(place, first = "") {
    const seen = shown();
    here = seen[Math.max(0, Math.min(place, seen.length - 1))];
    if (!here) return;
    const all = hiding ? "" : ` of ${scenes.length}`;
    say(`${first}${scenes.indexOf(here) + 1}${all}: ${title(here)}`);
    here.querySelector("h3").focus({ preventScroll: true });
    here.scrollIntoView();
  }

  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const busy = event.target.closest("a, button, summary, input, [tabindex='0']");
    const steps = { j: 1, ArrowRight: 1, k: -1, ArrowLeft: -1 };
    if (event.key in steps && !(busy?.matches("[tabindex='0']") && event.key.startsWith("Arrow"))) {
      event.preventDefault();
      go(current() + steps[event.key]);
    } else if ((event.key === "Enter" || event.key === " ") && hiding && !busy) {
      const scene = shown()[current()];
      if (!scene || open(scene)) return;
      event.preventDefault();
      reveal(scene);
    }
  }

  // Texts that stand elsewhere on the page come to where they are quoted when that is opened,
  // or when the quotation is pressed.
  function words(element) {
    const copy = element.cloneNode(true);
    for (const quote of copy.querySelectorAll("a.quote")) quote.replaceWith(quoted(quote));
    return copy.textContent;
  }

  function quoted(link) {
    const whole = words(document.querySelector(link.getAttribute("href")));
    const part = link.dataset.part?.split(" ").map(Number);
    return part ? whole.slice(...part) : whole;
  }

  function unquoted(link) {
    const span = document.createElement("span");
    span.className = "quoted";
    span.title = link.textContent;
    span.textContent = quoted(link);
    link.replaceWith(span);
    return span;
  }

  function fill(details) {
    for (const link of details.querySelectorAll("a.quote")) unquoted(link);
    for (const link of details.querySelectorAll(".again a:not(.copied)")) {
      link.classList.add("copied");
      const first = Number(link.hash.slice(2));
      const last = Number(link.dataset.last);
      const copies = [];
      for (let number = first; number <= last; number += 1) {
        const message = document.getElementById(`m${number}`);
        const copy = document.createElement("div");
        copy.className = "message";
        const label = message.querySelector(".label").cloneNode(true);
        const text = document.createElement("pre");
        text.className = "wrap";
        text.textContent = words(message.querySelector("pre"));
        copy.append(label, text);
        copies.push(copy);
      }
      link.parentElement.after(...copies);
    }
  }

  function unfold() {
    for (let at = document.getElementById(location.hash.slice(1)); at; at = at.parentElement) {
      if (at.tagName === "DETAILS") at.open = true;
    }
  }

  let folded = [];
  window.addEventListener("beforeprint", () => {
    printing = true;
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const details of folded) details.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const details of folded) details.open = false;
    setTimeout(() => { printing = false; });
  });
  document.addEventListener("toggle", (event) => {
    if (event.target.open && !printing) fill(event.target);
  }, true);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a.quote");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const span = unquoted(link);
    span.tabIndex = -1;
    span.focus({ preventScroll: true });
  });
  document.addEventListener("keydown", pressed);
  window.addEventListener("hashchange", unfold);
  button("previous").addEventListener("click", () => go(current() - 1));
  button("next").addEventListener("click", () => go(current() + 1));
  button("hide").addEventListener("click", () => hide(!hiding));
  button("bar").hidden = scenes.length === 0;
  unfold();
})();
