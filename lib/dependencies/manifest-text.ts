/** Manifests and lock files as text: read up to a bound, parsed, and failures that name a line. Owner: page dependencies/install. */

import { readFileSync, statSync } from 'node:fs'
import { parseJsonText } from '../config/json-text.ts'
import type { GatewayError } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { installError } from './install-step.ts'
import { lineOf } from './source-text.ts'

/** Bytes of a manifest or lock file that is read. */
const MAX_MANIFEST_BYTES = 8 * 1024 * 1024

/** @returns null when it is not there @throws GatewayError when it is too large or no file */
export function readSmallFile(path: string, label: string): string | null {
  const stats = statSync(path, { throwIfNoEntry: false })
  if (stats === undefined) return null
  const isRight = stats.isFile() && stats.size <= MAX_MANIFEST_BYTES
  if (isRight) return readFileSync(path, 'utf8').replace(/^\uFEFF/, '')
  const what = stats.isFile() ? `has ${stats.size} bytes; ${MAX_MANIFEST_BYTES} are the most` : 'is no regular file'
  throw installError(`${label} ${what}`, { file: label })
}

/**
 * The object of a JSON manifest.
 * @param example - the field that people write, for the hint
 * @throws GatewayError with file and line when it is none
 */
export function parseManifest(text: string, label: string, example: string): Record<string, unknown> {
  const parsed = parseJsonText(text, MAX_MANIFEST_BYTES)
  if (!parsed.ok) {
    const line = Math.max(1, parsed.line)
    throw installError(`${label}:${line}: is not JSON: ${parsed.reason}`, { file: label, line }, parsed.hint)
  }
  if (isObject(parsed.value)) return parsed.value
  throw installError(`${label}: must be a JSON object`, { file: label, line: 1 }, `write { "${example}": { } }`)
}

const MAX_SHOWN_CHARS = 80

/**
 * What a message shows of a value: its first word without credentials, query or what follows a `=`. The line around it may
 * hold a secret: the manifest may be a link to another file.
 */
export function showToken(value: unknown): string {
  if (Array.isArray(value)) return 'a list'
  if (typeof value === 'object' && value !== null) return 'an object'
  if (typeof value !== 'string') return String(value)
  const [word = ''] = value.trim().split(/[\s?#=;]/, 1)
  const bare = word.replace(/:\/\/[^/]*@/, '://')
  return JSON.stringify(bare.length <= MAX_SHOWN_CHARS ? bare : `${bare.slice(0, MAX_SHOWN_CHARS)}...`)
}

/** Line of a word in quotes, from 1; of the file's first when it is not there. */
export function lineOfWord(text: string, word: string): number {
  const at = text.indexOf(JSON.stringify(word))
  return at === -1 ? 1 : lineOf(text, at)
}

/** A failure that names the line of a word of a manifest: `message` begins with its label. */
export function manifestError(
  { text, label }: { text: string; label: string },
  message: string,
  word: string,
  hint: string,
): GatewayError {
  const line = lineOfWord(text, word)
  return installError(message.replace(label, `${label}:${line}`), { file: label, line }, hint)
}
