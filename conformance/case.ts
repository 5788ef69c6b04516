/** What a case of the specification is, whoever runs it. Owner: page bin/conformance. */

import type { Answer, SendOptions } from './http-client.ts'
import type { Lacks, Language } from './languages.ts'

/** What a case finds, by a name that tells the place of a failure; a test of tap is one of these. */
export interface Checks {
  ok(value: unknown, name: string): unknown
  notOk(value: unknown, name: string): unknown
  equal(actual: unknown, wanted: unknown, name: string): unknown
  /** Deep. */
  same(actual: unknown, wanted: unknown, name: string): unknown
  /** Texts hold the text or fit the pattern; objects have at least these fields. */
  match(actual: unknown, pattern: unknown, name: string): unknown
  notMatch(actual: unknown, pattern: unknown, name: string): unknown
  pass(name: string, extra: { skip: string }): unknown
}

export interface Case {
  /** Numbers of the statements in brackets, then what holds. */
  title: string
  run(bed: CaseBed): Promise<void>
}

/** A line of the server's log. */
export interface InsideRecord {
  message: string
  stream?: string | null
  requestId?: string | null
}

/** What is seen of a server in this process only. */
interface Inside {
  readonly logs: readonly InsideRecord[]
  /** A file that functions may write. */
  pathOf(name: string): string
  until(isSo: () => boolean): Promise<unknown>
  /** Calls a function by its name. */
  invoke(name: string, options: Record<string, unknown>): Promise<{ body: Buffer }>
}

/** The server under test. */
export interface CaseServer {
  /** `Host` of its address. */
  readonly host: string
  /** True where it sees the address and the clock of this machine. */
  readonly isLocal: boolean
  readonly languages: readonly Language[]
  /** null for a server elsewhere: what it writes and logs is not looked at. */
  readonly inside: Inside | null
  send(options: SendOptions): Promise<Answer>
  /** Once for each language; those that lack the case are told with the reason. */
  each(lacks: Lacks, check: (t: Checks, language: Language) => Promise<void>): Promise<void>
}

/** What cases ask of it. */
export class CaseBed {
  readonly #server: CaseServer

  constructor(server: CaseServer) {
    this.#server = server
  }

  get host(): string {
    return this.#server.host
  }

  get languages(): readonly Language[] {
    return this.#server.languages
  }

  get inside(): Inside | null {
    return this.#server.inside
  }

  get isLocal(): boolean {
    return this.#server.isLocal
  }

  send(options: SendOptions): Promise<Answer> {
    return this.#server.send(options)
  }

  each(lacks: Lacks, check: (t: Checks, language: Language) => Promise<void>): Promise<void> {
    return this.#server.each(lacks, check)
  }

  /** Has a handler give one of its answers. */
  ask(language: Language, answer: string, options: Partial<SendOptions> = {}): Promise<Answer> {
    return this.send({ path: `/${language.label}/all`, ...options, headers: { 'x-do': answer, ...options.headers } })
  }

  /** Has a handler return this value. */
  giveBack(language: Language, value: unknown): Promise<Answer> {
    return this.ask(language, 'return', { method: 'POST', body: JSON.stringify(value) })
  }

  /** Rows of returned JSON values; cells that a language lacks are told in one skip per reason. */
  runRows(rows: readonly Row[]): Promise<void> {
    return this.each({}, async (t, language) => {
      const lacking = new Map<string, string[]>()
      for (const { value, want, lacks } of rows) {
        const name = JSON.stringify(value).slice(0, 100)
        const reason = lacks?.[language.label]
        if (reason === undefined) check(t, name, await this.giveBack(language, value), want)
        else lacking.set(reason, [...(lacking.get(reason) ?? []), name])
      }
      for (const [reason, names] of lacking) t.pass(`without ${names.join(', ')}`, { skip: reason })
    })
  }
}

export interface Wanted {
  status?: number
  /** Content type; null for none. */
  type?: string | null
  text?: string
  json?: unknown
  /** Why it is refused: `error` without `invalid runtime response: `, with status 502. */
  broken?: string
  /** Headers that must be there; null for absent. */
  headers?: Readonly<Record<string, string | string[] | null>>
}

interface Row {
  value: unknown
  want: Wanted
  lacks?: Lacks
}

export function check(t: Checks, name: string, answer: Answer, want: Wanted): void {
  const seen: Record<string, unknown> = {}
  const wanted: Record<string, unknown> = {}
  const compare = (key: string, actual: unknown, expected: unknown): void => {
    seen[key] = actual
    wanted[key] = expected
  }
  compare('status', answer.status, want.status ?? (want.broken === undefined ? 200 : 502))
  if (want.type !== undefined) compare('type', answer.headers['content-type'] ?? null, want.type)
  if (want.text !== undefined) compare('text', answer.text, want.text)
  if (want.json !== undefined) compare('json', toJson(answer.text), want.json)
  if (want.broken !== undefined) compare('error', toError(answer), `invalid runtime response: ${want.broken}`)
  for (const [header, value] of Object.entries(want.headers ?? {})) {
    compare(header, answer.headers[header] ?? null, value)
  }
  t.same(seen, wanted, name)
}

export function toJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return `no JSON: ${text}`
  }
}

export const toError = (answer: Answer): unknown => (toJson(answer.text) as { error?: unknown })?.error ?? answer.text

/** What the fixtures answer to `echo` and `env`. */
export interface Echo {
  [field: string]: unknown
  ts: number
  method: string
  body: string | null
  query: Record<string, unknown>
  headers: Record<string, string>
  client: { ip: string }
  context: { user: { who: string; deep: unknown[] }; trace: string }
}

export const JSON_TYPE = 'application/json'
export const TEXT_TYPE = 'text/plain; charset=utf-8'
export const BYTES_TYPE = 'application/octet-stream'
