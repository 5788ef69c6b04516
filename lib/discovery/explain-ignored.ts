/** Which files might have been meant by a URL and were not used. Owner: §2.2, page discovery/layouts. */

import type { IgnoredPath } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { isMethod, isRuntimeName } from '../core/identity.ts'
import type { Discovery } from './part.ts'

export interface Explanation {
  /** Files and folders that expose nothing, and why. */
  ignored: IgnoredPath[]
  /** Warnings about files that would have answered. */
  warnings: Warning[]
}

/**
 * The part of a discovery that explains why a URL is not answered, or by another file than expected. Names are compared
 * generously: without private marks, method prefixes, runtime folders and case.
 * @param urlPath - decoded request path
 */
export function explainIgnored(discovery: Pick<Discovery, 'ignored' | 'warnings'>, urlPath: string): Explanation {
  const wanted = urlPath.toLowerCase().split('/').filter(isText)
  return {
    ignored: discovery.ignored.filter(({ path }) => couldMean(path, wanted)),
    warnings: discovery.warnings.filter(({ path }) => couldMean(path, wanted)),
  }
}

const FOLDER_WORDS = new Set(['index', 'handler', 'main'])

/** True when a file, or what a folder could hold, might stand for the path. */
function couldMean(path: string, wanted: readonly string[]): boolean {
  // The name of the file itself may be asked for, with or without its extension.
  const asked = wanted.join('/')
  const literal = path.toLowerCase()
  if (asked !== '' && (literal === asked || literal.replace(/\.[a-z]+$/, '') === asked)) return true
  const names = path.split('/')
  const last = names.pop()!
  if (/^fn\.\w+\.json$/.test(last)) return startsWith(wanted, names.flatMap(toWords))
  const dot = last.search(/\.[a-z]+$/)
  const isFile = dot > 0
  const folderWords = names.flatMap(toWords)
  if (!isFile) return startsWith(wanted, [...folderWords, ...toWords(last)])
  const words = [...folderWords, ...toWords(last.slice(0, dot))]
  const short = FOLDER_WORDS.has(words.at(-1) ?? '') ? words.slice(0, -1) : words
  return [words, short, withoutRuntime(short)].some(text => isSame(wanted, text))
}

/** `_post.users.[id]` to `users`, `[id]`. */
function toWords(name: string): string[] {
  const words = name.replace(/^_+/, '').match(/\[\[?\.{0,3}[^\]]*\]\]?|[^.[\]]+/g) ?? []
  return words.map(word => word.toLowerCase()).filter(word => !isMethod(word.toUpperCase()))
}

function withoutRuntime(words: readonly string[]): readonly string[] {
  return isRuntimeName(words[0]) ? words.slice(1) : words
}

function startsWith(wanted: readonly string[], words: readonly string[]): boolean {
  const heads = [words, withoutRuntime(words)]
  return heads.some(head => head.length <= wanted.length && isSame(wanted.slice(0, head.length), head))
}

function isSame(wanted: readonly string[], words: readonly string[]): boolean {
  for (const [index, word] of words.entries()) {
    if (word.startsWith('[...') || word.startsWith('[[...')) return wanted.length >= index
    const text = wanted[index]
    if (text === undefined || !(word.startsWith('[') || word === text)) return false
  }
  return words.length === wanted.length
}

function isText(text: string): boolean {
  return text !== ''
}
