/** Highlighting by the ending of a file's name. Owner: page console/function. */

import { go } from '@codemirror/lang-go'
import { javascript } from '@codemirror/lang-javascript'
import { json } from '@codemirror/lang-json'
import { php } from '@codemirror/lang-php'
import { python } from '@codemirror/lang-python'
import { rust } from '@codemirror/lang-rust'
import { StreamLanguage } from '@codemirror/language'
import { lua } from '@codemirror/legacy-modes/mode/lua'
import type { Extension } from '@codemirror/state'

const LANGUAGES: Readonly<Record<string, () => Extension>> = {
  js: javascript,
  cjs: javascript,
  mjs: javascript,
  ts: () => javascript({ typescript: true }),
  cts: () => javascript({ typescript: true }),
  mts: () => javascript({ typescript: true }),
  py: python,
  php,
  lua: () => StreamLanguage.define(lua),
  go,
  rs: rust,
  json,
}

/** @returns nothing for a file of another kind: it is shown as plain text */
export function toLanguage(fileName: string): Extension {
  return LANGUAGES[fileName.slice(fileName.lastIndexOf('.') + 1)]?.() ?? []
}
