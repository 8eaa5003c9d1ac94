// Browsers start no worker for a page that is opened from the disk. The search of the site asks for one: here is its
// stand-in, which runs the same script in a hidden frame. The theme looks for the name IFrameWorker.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.documentElement.append(frame)
      this.inside = frame.contentWindow
      this.inside.postMessage = data => {
        const message = new MessageEvent("message", { data })
        this.dispatchEvent(message)
        this.onmessage?.(message)
      }
      const script = this.inside.document.createElement("script")
      script.src = new URL(url, document.baseURI)
      this.ready = new Promise(resolve => script.addEventListener("load", resolve))
      this.inside.document.documentElement.append(script)
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })))
    }

    terminate() {
      this.inside.frameElement.remove()
    }
  }
}
