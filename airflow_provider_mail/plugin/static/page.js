// Takes over what is chosen in Airflow: the time zone, and inside its frame the theme. There, links that lead elsewhere
// open in a new window, which the frame itself may not do. Without this script the page works as well, with times in UTC.
(() => {
  const root = document.documentElement;

  const chosenZone = () => {
    try {
      return JSON.parse(localStorage.getItem("timezone")) || Intl.DateTimeFormat().resolvedOptions().timeZone;
    } catch {
      return Intl.DateTimeFormat().resolvedOptions().timeZone;
    }
  };
  // The server writes the times, so it is told the zone, and asked again if that is a new one.
  const tellZone = () => {
    const cookie = `mail_zone=${encodeURIComponent(chosenZone())}`;
    const isTold = () => document.cookie.split("; ").includes(cookie);
    if (!isTold()) {
      document.cookie = `${cookie}; path=${new URL("./", location.href).pathname}; max-age=31536000; samesite=lax`;
      if (isTold() && root.dataset.zone !== chosenZone()) {
        location.reload();
      }
    }
  };
  tellZone();
  addEventListener("storage", (event) => {
    if (event.key === "timezone") {
      tellZone();
    }
  });

  // An address without the fields that are empty is easier to read and to share.
  addEventListener("submit", (event) => {
    const fields = [...event.target.elements].filter((field) => field.name && field.value === "");
    fields.forEach((field) => { field.disabled = true; });
    setTimeout(() => fields.forEach((field) => { field.disabled = false; }));
  });

  let airflow = null;
  try {
    airflow = window.parent !== window ? window.parent.document : null;
  } catch {
    // Another origin shows the page; the browser keeps the two apart.
  }
  const follow = () => {
    const shown = airflow && ["dark", "light"].find((name) => airflow.documentElement.classList.contains(name));
    if (shown) {
      root.dataset.theme = shown;
    }
  };
  follow();
  if (!airflow) {
    return;
  }
  new MutationObserver(follow).observe(airflow.documentElement, { attributes: true, attributeFilter: ["class"] });
  addEventListener("DOMContentLoaded", () => {
    const link = document.getElementById("own-window");
    if (link) {
      link.hidden = false;
    }
  });
  addEventListener("click", (event) => {
    const link = event.target.closest("a[data-outside]");
    if (link) {
      event.preventDefault();
      const outside = airflow.createElement("a");
      Object.assign(outside, { href: link.href, target: "_blank", rel: "noopener noreferrer" });
      outside.click();
    }
  });
})();
