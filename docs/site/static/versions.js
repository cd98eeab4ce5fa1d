// The menu of versions: filled from the list that lies beside all of them, which newer versions are added to.
const menus = [...document.querySelectorAll("select.versions")];
const list = document.createElement("script");
list.src = `${menus[0].dataset.root}versions.js`;
list.onload = () => {
  for (const menu of menus) {
    const { root, version } = menu.dataset;
    menu.replaceChildren(...VERSIONS.map((each) => new Option(each, each, each === version, each === version)));
    menu.onchange = () => location.assign(`${root}${menu.value}/index.html`);
  }
};
document.head.append(list);
