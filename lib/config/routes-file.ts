/** `fn.routes.json`: a folder's own list of routes. Owner: §1, page config/function-config. */

import type { Warning } from '../core/errors.ts'
import { isMethod, METHODS, type Method } from '../core/identity.ts'
import type { JsonSchema } from './fields.ts'
import { isObject } from '../core/json.ts'
import {
  type Finding,
  keyOf,
  type Place,
  report,
  reportUnknownKey,
  reportWrong,
  showText,
  toPlace,
  toWarnings,
} from './findings.ts'
import { readJsonFile } from './json-text.ts'
import { isPublicPath, parseRelativePath } from './texts.ts'

/** One line of the file, `"GET,POST /items/:id": "items.js"`. */
export interface RouteEntry {
  methods: readonly Method[]
  /** Absolute public pattern as written; the router compiles it. */
  path: string
  /** File relative to the folder of the manifest, posix separators; whether it exists is discovery's question. */
  target: string
  /** The key as written, for messages. */
  definition: string
}

interface ParsedRoutes {
  routes: RouteEntry[]
  problems: Warning[]
}

const MAX_ENTRIES = 10_000

/**
 * Reads one `fn.routes.json`. A wrong entry is a warning and left out.
 * @param source - text or bytes of the file
 * @param fileLabel - path below the functions root, for messages
 */
export function parseRoutesFile(source: string | Uint8Array, fileLabel: string): ParsedRoutes {
  const findings: Finding[] = []
  const value = readJsonFile(source, fileLabel, findings)
  const routes = value === undefined ? [] : readRoutes(value, toPlace(fileLabel, '', findings))
  return { routes, problems: toWarnings(findings) }
}

function readRoutes(value: unknown, at: Place): RouteEntry[] {
  const hint = 'Write { "routes": { "GET /items": "items.js" } }.'
  if (!isObject(value)) {
    reportWrong(at, 'an object', value, hint)
    return []
  }
  for (const key of Object.keys(value)) {
    if (key !== 'routes' && key !== '$schema') reportUnknownKey(keyOf(at, key), key, ['routes'])
  }
  const routes = Object.hasOwn(value, 'routes') ? value.routes : undefined
  if (!isObject(routes) || Object.keys(routes).length > MAX_ENTRIES) {
    const rule = `an object of at most ${MAX_ENTRIES} routes`
    if (routes === undefined) report(keyOf(at, 'routes'), 'CONFIG_VALUE', 'is missing', hint, rule)
    else reportWrong(keyOf(at, 'routes'), rule, routes, hint)
    return []
  }
  return Object.keys(routes).flatMap(definition => readEntry(definition, routes[definition], at) ?? [])
}

function readEntry(definition: string, target: unknown, at: Place): RouteEntry | undefined {
  const place = { ...at, name: `routes["${showText(definition)}"]` }
  const words = definition.trim().split(/[\s,]+/)
  const path = words.pop() ?? ''
  if (!isPublicPath(path)) {
    const rule = 'methods and a path that starts with / and is not below /_fn or /console'
    return reportWrong(place, rule, definition, 'Write for example "GET,POST /items/:id".')
  }
  const methods = readMethods(words, place)
  if (methods.length === 0) return undefined
  const file = typeof target === 'string' ? parseRelativePath(target) : null
  if (file === null) {
    return reportWrong(place, 'a file, relative to this folder and without ..', target, 'Write for example "items.js".')
  }
  return { methods, path, target: file, definition }
}

function readMethods(words: readonly string[], at: Place): Method[] {
  if (words.length === 0) return ['GET']
  const given = new Set<string>()
  for (const word of words) {
    const method = word.toUpperCase()
    if (isMethod(method)) given.add(method)
    else {
      const text = `names the method ${showText(word)}, which is none of ${METHODS.join(', ')}`
      report(at, 'CONFIG_VALUE', text, `Remove ${showText(word)}.`)
    }
  }
  return METHODS.filter(method => given.has(method))
}

/** `GET` to `[Gg][Ee][Tt]`: JSON Schema patterns have no flags. */
function toAnyCase(word: string): string {
  return [...word].map(letter => `[${letter}${letter.toLowerCase()}]`).join('')
}

/** JSON Schema of the file. */
export const ROUTES_FILE_SCHEMA: JsonSchema = {
  type: 'object',
  properties: {
    $schema: { type: 'string' },
    routes: {
      type: 'object',
      description: 'Methods and public path to handler file; no method means GET.',
      propertyNames: { pattern: `^\\s*((${METHODS.map(toAnyCase).join('|')})[\\s,]+)*/\\S*\\s*$` },
      additionalProperties: { type: 'string', minLength: 1 },
      maxProperties: MAX_ENTRIES,
    },
  },
  required: ['routes'],
  additionalProperties: false,
}
