// The words of the page in each language. A missing word is an error of the page, and a test finds it.

export const TEXTS = {
  en: {
    language: "Language", request: "Request", engine: "Engine", prompt: "What the picture shows",
    negative: "What it does not show", drop: "Drop a picture here, or choose one",
    drop_optional: "Drop a picture to start from, or choose one (optional)", remove: "Remove the picture",
    mask: "Mask",
    mask_help: "Paint over the parts that are made anew. With the keyboard: arrow keys move the brush, the space bar "
      + "paints.",
    mask_optional: "Without a mask, all of the picture changes.",
    mask_label: "Mask over the picture", brush: "Width of the brush", erase: "Erase", clear_mask: "Clear the mask",
    size: "Size", steps: "Steps", guidance: "Guidance", seed: "Seed (empty: any)", strength: "Change (0 to 1)",
    key: "Key of the server", start: "Start", cancel: "Cancel", result: "Result", download: "Save the picture",
    history: "History of this browser", no_history: "Nothing yet. Results stay in this browser alone.",
    clear_history: "Forget all", slider: "Share of the picture that shows the original",
    before: "The original", after: "The result", chosen: "The picture that was chosen", preview: "Preview",
    shown_again: "Show again: {name}", task_upscale: "Makes a picture larger or better.",
    task_depth: "Gives the depth of each pixel.", task_generate: "Makes pictures of texts.",
    task_restore: "Restores a picture.", task_inpaint: "Fills in what you paint over.",
    task_other: "This page has nothing for this engine; programs give it tensors.",
    no_engines: "The server has no engine.", need_picture: "Choose a picture first.",
    need_prompt: "Write what the picture shows.", need_mask: "This engine fills painted parts: paint a mask.",
    uploading: "Sending …", queued: "Waiting: {place} in front", running: "Working: {done} of {total}",
    completed: "Done.", cancelled: "Cancelled.", failed: "It failed: {reason}", lost: "The server cannot be reached.",
    key_needed: "The server wants a key. Enter it, and start again.", facts: "{size}, seed {seed}",
  },
  de: {
    language: "Sprache", request: "Auftrag", engine: "Engine", prompt: "Was das Bild zeigt",
    negative: "Was es nicht zeigt", drop: "Bild hier ablegen oder auswählen",
    drop_optional: "Bild als Anfang ablegen oder auswählen (freiwillig)", remove: "Bild entfernen",
    mask: "Maske",
    mask_help: "Die Teile übermalen, die neu gemacht werden. Mit der Tastatur: Pfeiltasten bewegen den Pinsel, die "
      + "Leertaste malt.",
    mask_optional: "Ohne Maske ändert sich das ganze Bild.",
    mask_label: "Maske über dem Bild", brush: "Breite des Pinsels", erase: "Radieren", clear_mask: "Maske leeren",
    size: "Größe", steps: "Schritte", guidance: "Führung", seed: "Startzahl (leer: beliebig)",
    strength: "Änderung (0 bis 1)", key: "Schlüssel des Servers", start: "Start", cancel: "Abbrechen",
    result: "Ergebnis", download: "Bild speichern", history: "Verlauf dieses Browsers",
    no_history: "Noch nichts. Ergebnisse bleiben allein in diesem Browser.", clear_history: "Alles vergessen",
    slider: "Anteil des Bildes, der das Original zeigt", before: "Das Original", after: "Das Ergebnis",
    chosen: "Das ausgewählte Bild", preview: "Vorschau", shown_again: "Noch einmal zeigen: {name}",
    task_upscale: "Macht ein Bild größer oder besser.", task_depth: "Gibt die Tiefe jedes Bildpunkts.",
    task_generate: "Macht Bilder aus Texten.", task_restore: "Stellt ein Bild wieder her.",
    task_inpaint: "Füllt, was übermalt wird.",
    task_other: "Für diese Engine hat die Seite nichts; Programme geben ihr Tensoren.",
    no_engines: "Der Server hat keine Engine.", need_picture: "Zuerst ein Bild auswählen.",
    need_prompt: "Schreiben, was das Bild zeigt.", need_mask: "Diese Engine füllt übermalte Teile: eine Maske malen.",
    uploading: "Wird gesendet …", queued: "Wartet: {place} davor", running: "Arbeitet: {done} von {total}",
    completed: "Fertig.", cancelled: "Abgebrochen.", failed: "Es ist gescheitert: {reason}",
    lost: "Der Server ist nicht erreichbar.",
    key_needed: "Der Server verlangt einen Schlüssel. Eingeben und noch einmal starten.",
    facts: "{size}, Startzahl {seed}",
  },
};

let words = TEXTS.en;

export function text(name, values = {}) {
  return words[name].replace(/\{(\w+)\}/g, (_, value) => String(values[value]));
}

/** Puts the words of a language into the page. */
export function speak(language) {
  words = TEXTS[language];
  document.documentElement.lang = language;
  for (const element of document.querySelectorAll("[data-text]")) {
    element.textContent = text(element.dataset.text);
  }
}
