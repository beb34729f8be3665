"use strict";
// Pages are whole without this file. It follows the theme of a surrounding page, and the keyboard.
(() => {
  const root = document.documentElement;

  // Airflow shows the dashboard in a frame and marks its own theme by a class.
  const followTheme = () => {
    const outer = window.parent.document.documentElement;
    const apply = () => {
      const isDark = outer.classList.contains("dark");
      const isLight = outer.classList.contains("light");
      root.classList.toggle("dark", isDark);
      root.classList.toggle("light", !isDark && isLight);
      document.dispatchEvent(new Event("acktrail:theme"));
    };
    apply();
    new MutationObserver(apply).observe(outer, { attributes: true, attributeFilter: ["class"] });
  };
  if (window.parent !== window) {
    try { followTheme(); } catch { /* a frame of another server keeps its theme to itself */ }
  }

  // A frame in Airflow may not leave itself: the page around it follows the link in its place.
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element && event.target.closest("a[data-outer]");
    if (!link || window.parent === window) return;
    try {
      const outer = window.parent.document.createElement("a");
      outer.href = link.href;
      window.parent.document.body.append(outer);
      outer.click();
      outer.remove();
      event.preventDefault();
    } catch { /* a frame of another server: the link opens within it */ }
  });

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target instanceof Element && event.target.closest("input, textarea, select");
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const field = document.getElementById("find");
      if (field) { event.preventDefault(); field.focus(); field.select(); }
    }
  });
})();
