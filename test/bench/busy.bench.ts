/**
 * A fast function beside eight processes of others that calculate all the time: its p99 to that of the fast function alone, in one run.
 * `FNGW_BENCH_LANGUAGES=node` chooses the language of the busy ones (node, python, php, go, rust); default python.
 * Functions of Lua are threads of the gateway itself: no process of theirs stands beside it.
 */

import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { QuietRounds } from './foreign.ts'
import { start } from './hello.bench.ts'
import { hasWrk, load, median, READY, untilBuilt } from './load.ts'
import type { BenchRow } from './rows.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const BUSY = Array.from({ length: 8 }, (_, i) => `busy${i}`)
const CONNECTIONS = 4
/** Time until all of them calculate. */
const WARM_UP_MS = 500
/** A tenth of a second of work a call. */
const CALCULATES: Record<string, [file: string, text: string]> = {
  node: [
    'handler.js',
    `const used = () => process.cpuUsage().user + process.cpuUsage().system
export const handler = () => {
  const end = used() + 100_000
  while (used() < end) {}
  return { done: true }
}
`,
  ],
  python: [
    'handler.py',
    `import time

def handler(event):
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    return {"done": True}
`,
  ],
  php: [
    'handler.php',
    `<?php
function used() { $now = getrusage(); return ($now['ru_utime.tv_sec'] + $now['ru_stime.tv_sec']) * 1e6 + $now['ru_utime.tv_usec'] + $now['ru_stime.tv_usec']; }
function handler($event) {
    $end = used() + 1e5;
    while (used() < $end);
    return ['done' => true];
}
`,
  ],
  go: [
    'handler.go',
    `package main

import "syscall"

func used() int64 {
	var now syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &now)
	return now.Utime.Nano() + now.Stime.Nano()
}

func Handler(event map[string]any) map[string]any {
	for end := used() + 100_000_000; used() < end; {
	}
	return map[string]any{"status": 200, "body": "done"}
}
`,
  ],
  rust: [
    'handler.rs',
    `use serde_json::{json, Value};

extern "C" {
    /// Microseconds of processor time of this process.
    fn clock() -> std::os::raw::c_long;
}

pub fn handler(_event: Value) -> Value {
    let end = unsafe { clock() } + 100_000;
    while unsafe { clock() } < end {}
    json!({"status": 200, "body": "done"})
}
`,
  ],
}

/** How the system shares the processors out, which decides more than anything else here. */
function toGrouping(): string {
  const groups = readOrEmpty('/proc/self/cgroup')
  // Version 1 has a line for each kind of limit, version 2 one line, and a file with the weight in all groups but the first.
  const ownOfVersion1 = /^\d+:(?:[^:]*,)?cpu(?:,[^:]*)?:\/(.*)$/m.exec(groups)?.[1]
  const ownOfVersion2 = /^0::(.*)$/m.exec(groups)?.[1]
  const hasWeight = existsSync(join('/sys/fs/cgroup', ownOfVersion2 ?? '', 'cpu.weight'))
  if (hasWeight || (ownOfVersion1 ?? '') !== '') return 'within a control group'
  return readOrEmpty('/proc/sys/kernel/sched_autogroup_enabled').trim() === '1' ? 'by sessions' : 'by processes'
}

function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

export async function run(): Promise<BenchRow[]> {
  if (!hasWrk()) throw new Error('wrk is missing: apt-get install wrk')
  const seconds = Number(process.env.FNGW_BENCH_SECONDS ?? 2)
  const rounds = Number(process.env.FNGW_BENCH_ROUNDS ?? 5)
  const root = mkdtempSync(join(tmpdir(), 'fngw-bench-busy-'))
  const write = (folder: string, file: string, text: string): void => {
    mkdirSync(join(root, folder))
    writeFileSync(join(root, folder, file), text)
  }
  write('hello', 'handler.js', "export const handler = () => ({ message: 'hello' })\n")
  const language = process.env.FNGW_BENCH_LANGUAGES ?? 'python'
  const [file, text] = CALCULATES[language]!
  for (const name of BUSY) write(name, file, text)
  const program = [
    join(ROOT, 'dist/bin/fngw.js'),
    'run',
    root,
    '--native',
    '--port',
    '0',
    '--runtimes',
    `node,${language}`,
  ]
  const { child, match } = await start(program, READY)
  const url = match[1]!
  const quiet = new QuietRounds()
  const figures: { p50: number; p99: number; calls: number }[] = []
  try {
    for (const name of ['hello', ...BUSY]) await untilBuilt(`${url}/${name}`)
    await load(`${url}/hello`, CONNECTIONS, 2)
    const round = async () => {
      const alone = await load(`${url}/hello`, CONNECTIONS, seconds)
      // Those begin before and end after. wrk would leave its last calls behind, which then run beside what is measured alone.
      let isOver = false
      let calls = 0
      const others = BUSY.map(async name => {
        for (; !isOver; calls++) {
          const response = await fetch(`${url}/${name}`)
          await response.arrayBuffer()
          if (response.status !== 200) throw new Error(`${name}: ${response.status}`)
        }
      })
      await new Promise(done => setTimeout(done, WARM_UP_MS))
      const before = calls
      const beside = await load(`${url}/hello`, CONNECTIONS, seconds)
      const during = calls - before
      isOver = true
      await Promise.all(others)
      if (alone.failures + beside.failures > 0) throw new Error(`${alone.failures + beside.failures} failures`)
      return { p50: beside.p50Us / alone.p50Us, p99: beside.p99Us / alone.p99Us, calls: during / seconds }
    }
    while (figures.length < rounds) figures.push(await quiet.run(round))
  } finally {
    child.kill('SIGTERM')
    await new Promise(done => child.on('exit', done))
    rmSync(root, { recursive: true, force: true })
  }
  const of = (key: 'p50' | 'p99' | 'calls'): number => median(figures.map(one => one[key]))
  return [
    {
      name: `p50 beside ${BUSY.length} busy processes, to alone; processors shared out ${toGrouping()}`,
      value: of('p50'),
      unit: 'ratio',
    },
    { name: 'p99', value: of('p99'), unit: 'ratio', goal: '<= 2', ok: of('p99') <= 2 },
    { name: 'calls of the busy functions', value: of('calls'), unit: '/s' },
    ...quiet.toRows(),
  ]
}
