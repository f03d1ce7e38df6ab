// Live updates. A page says which topics it shows; when it begins to listen, and when the planner says that one of them changed, it is
// asked for again, and the parts that are not as they were are put in their places. The planner looks at what is new or at work; for
// all else a page that is looked at is asked for again from time to time. Without this script pages stay as they were made.
"use strict";
(() => {
  const topics = (document.body.dataset.topics || "").split(" ").filter(Boolean);
  const status = document.getElementById("live");
  if (topics.length === 0 || !("EventSource" in window)) return;

  const SOMETIMES = 20_000; // Milliseconds between two looks at what nobody told to have changed.
  let isBusy = false; // A page is on its way.
  let isStale = false; // Something changed since it was asked for.

  const say = (text) => {
    if (status && status.textContent !== text) status.textContent = text;
  };

  // What a reader has opened, chosen or typed in stays as it is.
  const isHeld = (part) => part.contains(document.activeElement) && document.activeElement.matches("input:focus")
    || part.querySelector("input:checked") !== null;

  const parts = (page) => [...page.querySelectorAll("[data-live]")];

  const place = (fresh) => {
    const ids = (page) => parts(page).map((part) => part.id).join(" ");
    const main = document.getElementById("main");
    if (ids(fresh) !== ids(document) && !isHeld(main)) {
      main.replaceWith(document.adoptNode(fresh.getElementById("main")));
      return;
    }
    for (const part of parts(document)) {
      const other = fresh.getElementById(part.id);
      if (other && other.innerHTML !== part.innerHTML && !isHeld(part)) {
        part.replaceWith(document.adoptNode(other));
      }
    }
  };

  const refresh = async () => {
    if (isBusy || document.hidden) {
      isStale = true;
      return;
    }
    isBusy = true;
    isStale = false;
    let pause = 50; // What changed meanwhile is seen soon; a planner that does not answer is left alone for a while.
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      if (answer.ok) place(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch {
      isStale = true;
      pause = 1000;
    }
    isBusy = false;
    if (isStale) setTimeout(refresh, pause);
  };

  setInterval(refresh, SOMETIMES);

  // A browser opens few connections to one place, and all of its pages share them: only a page that is looked at holds one.
  let source = null;

  const listen = () => {
    if (source || document.hidden) return;
    source = new EventSource("/events");
    // What changed after the page was made and before this is in no event.
    source.addEventListener("open", () => {
      say("live");
      refresh();
    });
    source.addEventListener("error", () => say(source && source.readyState === EventSource.CLOSED ? "not live" : "reconnecting …"));
    source.addEventListener("changed", (event) => {
      if (event.data.split(" ").some((topic) => topics.includes(topic))) refresh();
    });
  };

  const rest = () => {
    if (source) source.close();
    source = null;
  };

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return rest();
    listen();
    refresh();
  });
  window.addEventListener("pagehide", rest);
  window.addEventListener("pageshow", (event) => {
    listen();
    if (event.persisted) refresh();
  });
  listen();
})();
