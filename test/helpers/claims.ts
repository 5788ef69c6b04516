/** Claims for tests of the route table. */

import type { Claim, ClaimSource } from '../../lib/core/catalog.ts'
import { METHODS, type Method, type RuntimeName } from '../../lib/core/identity.ts'
import { type Pattern, parsePattern } from '../../lib/core/pattern.ts'
import { makeFn } from './fn.ts'

/** A pattern that is known to be one. */
export function patternOf(text: string): Pattern {
  const pattern = parsePattern(text)
  if ('problem' in pattern) throw new Error(`${text}: it ${pattern.problem}`)
  return pattern
}

export interface ClaimFields {
  /** Name of the function; two claims with one name are claims of one function. */
  fn: string
  runtime?: RuntimeName
  version?: string | null
  source?: ClaimSource
  methods?: string
  hosts?: string[]
  forced?: boolean
  implied?: boolean
  /** Folder of the function; its name by default. */
  folder?: string
}

/** `makeClaim('GET,POST /users', { fn: 'users' })`; without methods all five. */
export function makeClaim(route: string, fields: ClaimFields): Claim {
  const space = route.indexOf(' ')
  const methods = space < 0 ? [...METHODS] : (route.slice(0, space).split(',') as Method[])
  const folder = fields.folder ?? fields.fn
  const fn = makeFn({
    name: fields.fn,
    runtime: fields.runtime ?? 'node',
    version: fields.version ?? null,
    fnDir: `/srv/${folder}`,
    entryFile: `${folder}/${fields.fn}.js`,
  })
  const source = fields.source ?? 'file'
  const origins = { file: fn.entryFile, manifest: 'fn.routes.json', config: `${folder}/fn.config.json` }
  return {
    pattern: patternOf(route.slice(space + 1)),
    methods,
    hosts: fields.hosts ?? [],
    fn,
    source,
    forced: fields.forced ?? false,
    origin: origins[source],
    implied: fields.implied ?? false,
  }
}
