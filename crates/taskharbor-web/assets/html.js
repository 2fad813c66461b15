/** How pages are written: `html` makes elements. Values become text nodes, never markup. */

import { h } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export { Fragment, render } from "./vendor/preact.js";
export {
  useCallback,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "./vendor/hooks.js";

/** @type {(strings: TemplateStringsArray, ...values: any[]) => import("./vendor/preact.js").VNode<any>} */
export const html = /** @type {any} */ (htm.bind(h));
