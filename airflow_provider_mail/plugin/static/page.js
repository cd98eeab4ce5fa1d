// Inside Airflow's frame: take over the theme that is chosen there, and open links that lead elsewhere in a new window,
// which the frame itself may not do. Without this script the page works as well.
(() => {
  const root = document.documentElement;
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
