"use strict";

// Refresh what is marked with data-live when something has changed. The page is the one that the server renders.
let version = null;

async function refresh() {
  const response = await fetch(location.href, { cache: "no-store" });
  if (!response.ok) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const fresh = page.getElementById(part.id);
    const busy = part.contains(document.activeElement) && document.activeElement.matches("input, select, button");
    if (!fresh || busy || fresh.innerHTML === part.innerHTML) continue;
    const focused = part.contains(document.activeElement) && document.activeElement.getAttribute("href");
    part.innerHTML = fresh.innerHTML;
    if (focused) part.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  }
}

async function watch() {
  let pause = 1000;
  if (!document.hidden) {
    try {
      const found = await (await fetch("/inbox/version", { cache: "no-store" })).text();
      if (version !== null && found !== version) await refresh();
      version = found;
    } catch {
      pause = 5000; // the emulator has stopped
    }
  }
  setTimeout(watch, pause);
}

// Keys, as on other mail pages.
function move(step) {
  const links = [...document.querySelectorAll(".rows a")];
  const next = links.indexOf(document.activeElement) + step;
  links[Math.max(0, Math.min(links.length - 1, next))]?.focus();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  if (event.key === "/") document.querySelector("input[type=search]")?.focus();
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "u") history.back();
  else return;
  event.preventDefault();
});

watch();
