// Tables and blocks that scroll sideways take the keyboard, so that the arrow keys scroll them.
addEventListener("load", () => {
  for (const one of document.querySelectorAll("table, pre, pre code")) {
    if (one.scrollWidth > one.clientWidth) one.tabIndex = 0;
  }
});
