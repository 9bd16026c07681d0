// A still from the webcam. The camera is on only while its dialog is open.

import { byId, show } from "./dom.js";

/** Wire the button and the dialog; `onFile(file)` gets the still, `onError(message)` why there is none. */
export function wireWebcam(onFile, onError) {
  const dialog = byId("webcam-dialog");
  const video = byId("webcam-video");
  // browsers offer no camera to pages from plain HTTP, except on this machine itself
  show(byId("webcam"), Boolean(navigator.mediaDevices?.getUserMedia));
  byId("webcam").addEventListener("click", async () => {
    try {
      video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    } catch (error) {
      return onError(`The camera cannot be used: ${error.message}`);
    }
    dialog.showModal();
  });
  dialog.addEventListener("close", () => {
    video.srcObject?.getTracks().forEach((track) => track.stop());
    video.srcObject = null;
  });
  byId("webcam-cancel").addEventListener("click", () => dialog.close());
  byId("webcam-take").addEventListener("click", async () => {
    const file = await still(video);
    dialog.close();
    if (file) onFile(file);
    else onError("The camera shows nothing yet: try again.");
  });
}

async function still(video) {
  if (!video.videoWidth) return null;
  const canvas = document.createElement("canvas");
  canvas.width = video.videoWidth;
  canvas.height = video.videoHeight;
  canvas.getContext("2d").drawImage(video, 0, 0);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.92));
  return blob && new File([blob], "webcam.jpg", { type: blob.type });
}
