/** Runs every case against a server and tells what was found as TAP. Owner: page bin/conformance. */

import { inspect } from 'node:util'
import { type Case, CaseBed, type CaseServer } from './case.ts'
import { CASES } from './cases.ts'
import { type Answer, type HttpTarget, send, toHttpTarget } from './http-client.ts'
import type { Language } from './languages.ts'
import { Recorder } from './recorder.ts'

/** Milliseconds that a first build may take, and between two looks at it. */
const BUILD_WAIT_MS = 150_000
const LOOK_AGAIN_MS = 250
/** Failures of one case that are shown, and characters of each value. */
const SHOWN_FAILURES = 5
const SHOWN_LENGTH = 400
/** Functions of each language that are asked for before the cases begin. */
const FIRST_ASKED = ['all', 'short', 'other']

interface RunOptions {
  url: URL
  languages: readonly Language[]
  /** Takes one line of TAP. */
  print(line: string): void
}

export interface Totals {
  total: number
  pass: number
  skip: number
  fail: number
}

/**
 * One test point per case and language.
 * @throws what the network says when nobody answers at all
 */
export async function runCases({ url, languages, print }: RunOptions): Promise<Totals> {
  const target = toHttpTarget(url)
  try {
    const missing = await findMissing(target, languages)
    const totals: Totals = { total: 0, pass: 0, skip: 0, fail: 0 }
    print('TAP version 14')
    for (const one of CASES) {
      const found = await runCase(one, { url, target, languages, missing })
      for (const [label, result] of found) printPoint(`${one.title} (${label})`, result, totals, print)
    }
    print(`1..${totals.total}`)
    const { total, pass, skip, fail } = totals
    const parts = [
      `total: ${total}`,
      `pass: ${pass}`,
      ...(skip > 0 ? [`skip: ${skip}`] : []),
      ...(fail > 0 ? [`fail: ${fail}`] : []),
    ]
    print(`# { ${parts.join(', ')} }`)
    return totals
  } finally {
    target.close()
  }
}

interface CaseRun {
  url: URL
  target: HttpTarget
  languages: readonly Language[]
  missing: ReadonlyMap<string, string>
}

/** What was found, or why nothing was looked at, by language. */
async function runCase(
  { run }: Case,
  { url, target, languages, missing }: CaseRun,
): Promise<Map<string, Recorder | string>> {
  const found = new Map<string, Recorder | string>()
  const served = languages.filter(({ label }) => !missing.has(label))
  const recorderOf = (label: string): Recorder => {
    const before = found.get(label)
    const recorder = before instanceof Recorder ? before : new Recorder()
    found.set(label, recorder)
    return recorder
  }
  const each: CaseServer['each'] = async (lacks, check) => {
    for (const language of languages) {
      const { label } = language
      const reason = missing.get(label) ?? lacks[label]
      if (reason !== undefined) {
        if (!found.has(label)) found.set(label, reason)
        continue
      }
      const recorder = recorderOf(label)
      await check(recorder, language).catch(error => recorder.broke(error))
    }
  }
  // Only there does the server see the address of this machine as cases name it.
  const isLocal = url.hostname === '127.0.0.1'
  const bed = new CaseBed({
    host: url.host,
    isLocal,
    languages: served,
    inside: null,
    send: options => send(target, options),
    each,
  })
  await run(bed).catch(error => {
    for (const { label } of served) recorderOf(label).broke(error)
  })
  return found
}

/** Languages that the server does not serve, with the reason. Those that are built are waited for. */
async function findMissing(target: HttpTarget, languages: readonly Language[]): Promise<Map<string, string>> {
  const missing = new Map<string, string>()
  for (const { label } of languages) {
    for (const folder of FIRST_ASKED) {
      const { status } = await askUntilBuilt(target, `/${label}/${folder}`)
      if (status === 404 && folder === 'all') missing.set(label, `not served: /${label}/all answers 404`)
      if (status === 404) break
    }
  }
  return missing
}

async function askUntilBuilt(target: HttpTarget, path: string): Promise<Answer> {
  const endsAt = performance.now() + BUILD_WAIT_MS
  for (;;) {
    const answer = await send(target, { path, headers: { 'x-do': 'echo' } })
    if (answer.status !== 503 || performance.now() > endsAt) return answer
    await new Promise(resolve => setTimeout(resolve, LOOK_AGAIN_MS))
  }
}

function printPoint(title: string, result: Recorder | string, totals: Totals, print: RunOptions['print']): void {
  totals.total += 1
  const name = `${totals.total} - ${toText(title)}`
  if (typeof result === 'string') {
    totals.skip += 1
    print(`ok ${name} # SKIP ${toText(result)}`)
    return
  }
  const { failures, lacking, count } = result
  totals[failures.length === 0 ? 'pass' : 'fail'] += 1
  print(`${failures.length === 0 ? 'ok' : 'not ok'} ${name}`)
  for (const part of lacking) print(`# left out: ${toText(part)}`)
  if (failures.length === 0) return
  print('  ---')
  print(`  failed: ${failures.length} of ${count} checks`)
  print('  checks:')
  for (const { name, found, wanted } of failures.slice(0, SHOWN_FAILURES)) {
    print(`    - check: ${toShown(name)}`)
    print(`      found: ${toShown(found)}`)
    print(`      wanted: ${toShown(wanted)}`)
  }
  print('  ...')
}

/** A value as a text of YAML in one line: what a server answered is shown and never read. */
function toShown(value: unknown): string {
  const text = typeof value === 'string' ? value : inspect(value, { depth: 6, breakLength: Infinity })
  return JSON.stringify(text.length > SHOWN_LENGTH ? `${text.slice(0, SHOWN_LENGTH)}...` : text)
}

/** A `#` would begin a directive. */
function toText(text: string): string {
  return text.replaceAll(/\s+/g, ' ').replaceAll('\\', '\\\\').replaceAll('#', '\\#')
}
