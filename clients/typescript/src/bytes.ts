/** Bytes as text, without what only one runtime has. */

/** Bytes in base64. */
export function toBase64(bytes: Uint8Array): string {
  let text = "";
  // In parts, since a function takes this many arguments only.
  for (let at = 0; at < bytes.length; at += 0x8000) {
    text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  }
  return btoa(text);
}

/** The bytes that are written in base64. */
export function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}

interface Randomness {
  getRandomValues(bytes: Uint8Array): Uint8Array;
}

let randomness: Randomness | undefined = (globalThis as { crypto?: Randomness }).crypto;

/** So many random bytes. */
export async function random(count: number): Promise<Uint8Array> {
  if (randomness === undefined) {
    // Node 18 has no global of that name. The name is a variable so that bundlers leave it alone.
    const name = "node:crypto";
    randomness = ((await import(name)) as { webcrypto: Randomness }).webcrypto;
  }
  return randomness.getRandomValues(new Uint8Array(count));
}

/** Bytes in hexadecimal digits. */
export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A UUID of version 7: ids sort by the time at which they were made. */
export async function newId(): Promise<string> {
  const bytes = await random(16);
  let millis = Date.now();
  for (let at = 5; at >= 0; at -= 1) {
    bytes[at] = millis % 256;
    millis = Math.floor(millis / 256);
  }
  bytes[6] = 0x70 | (bytes[6] ?? 0) % 16;
  bytes[8] = 0x80 | (bytes[8] ?? 0) % 64;
  const text = hex(bytes);
  return [text.slice(0, 8), text.slice(8, 12), text.slice(12, 16), text.slice(16, 20), text.slice(20)].join("-");
}
