/** Lists of which a page is shown first, and more when they are wanted. */

import { address, get } from "./api.js";
import { counted } from "./format.js";
import { html, useEffect, useState } from "./html.js";
import { useResource } from "./resource.js";

/** So many pages of a list as one. @param {string | URL} url @param {number} pages @param {AbortSignal} [signal] */
async function getPages(url, pages, signal) {
  const list = await get(url, signal);
  for (let page = 1; page < pages && list.next; page += 1) {
    const { items, next } = await get(address(`${url}`, { after: list.next }), signal);
    Object.assign(list, { items: [...list.items, ...items], next });
  }
  return list;
}

/**
 * A list, of which all pages that are shown are fetched again every `every` milliseconds.
 * @param {string | URL} url
 * @param {{every: number}} options
 * @returns {import("./resource.js").Resource<any> & {load: () => void}}
 */
export function usePages(url, { every }) {
  const [pages, setPages] = useState(1);
  useEffect(() => setPages(1), [`${url}`]);
  const resource = useResource(url, { every, turn: pages, read: (first, signal) => getPages(first, pages, signal) });
  return { ...resource, load: () => setPages(pages + 1) };
}

/** How much of a list is shown, and a button for more. @param {{list: any, what: string}} props */
export const More = ({ list: { data, load }, what }) =>
  html`<p class="bar dim more">${counted(data.items.length, what)} shown${data.next ? html` <button type="button" onClick=${load}>Load more</button>` : ", that is all"}</p>`;
