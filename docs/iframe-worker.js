// Browsers start no worker from a file: address, so the search would not work when the site is
// opened from the disk. There, a hidden frame runs the worker's script instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #early = []; // messages sent before the script was loaded

    constructor(url) {
      super();
      const script = document.createElement("script");
      script.src = url;
      this.#frame.hidden = true;
      this.#frame.srcdoc = script.outerHTML;
      this.#frame.addEventListener("load", () => {
        const scope = this.#frame.contentWindow;
        scope.postMessage = (data) => {
          const message = new MessageEvent("message", { data });
          this.onmessage?.(message);
          this.dispatchEvent(message);
        };
        const early = this.#early;
        this.#early = null;
        early.forEach((data) => this.postMessage(data));
      });
      document.body.appendChild(this.#frame);
    }

    postMessage(data) {
      if (this.#early) this.#early.push(data);
      else this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.#frame.remove();
    }
  };
  window.IFrameWorker = window.Worker; // the theme looks for this name in the frame's parent
}
