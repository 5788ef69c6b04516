/** One function a language that runs its body as a shell command: one set of attempts for all. */

import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync } from 'node:fs'
import t, { type Test } from 'tap'
import { createGateway, type Gateway } from '../../lib/index.ts'
import { findProgram } from '../../lib/runtime/binaries.ts'
import { injectBuilt, makeBuilds, missingToolchain, shareCrates } from '../helpers/compiled.ts'
import { makeTree } from '../helpers/tree.ts'

/** Each runs its body as a shell command and answers with what that wrote: one set of attempts for all languages. */
export const HANDLERS = {
  node: [
    'handler.js',
    `import { spawnSync } from 'node:child_process'
export const handler = event => ({ status: 200, body: spawnSync('sh', ['-c', event.body], { encoding: 'utf8' }).output.join('') })`,
  ],
  ts: [
    'handler.ts',
    `import { spawnSync } from 'node:child_process'
export const handler = (event: { body: string }): { status: number; body: string } => ({ status: 200, body: spawnSync('sh', ['-c', event.body], { encoding: 'utf8' }).output.join('') })`,
  ],
  python: [
    'handler.py',
    `import subprocess
def handler(event):
    done = subprocess.run(['sh', '-c', event['body']], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return {'status': 200, 'body': done.stdout}`,
  ],
  php: [
    'handler.php',
    `<?php function handler($event) { return ['status' => 200, 'body' => (string) shell_exec('(' . $event['body'] . ') 2>&1')]; }`,
  ],
  go: [
    'handler.go',
    `package fn

import "os/exec"

func handler(event map[string]any) map[string]any {
	out, _ := exec.Command("sh", "-c", event["body"].(string)).CombinedOutput()
	return map[string]any{"status": 200, "body": string(out)}
}`,
  ],
  rust: [
    'handler.rs',
    `use serde_json::{json, Value};

pub fn handler(event: Value) -> Value {
    let line = format!("({}) 2>&1", event["body"].as_str().unwrap_or(""));
    let out = std::process::Command::new("sh").arg("-c").arg(line).output().unwrap();
    json!({ "status": 200, "body": String::from_utf8_lossy(&out.stdout) })
}`,
  ],
} as const

export type Language = keyof typeof HANDLERS

const PATH = process.env.PATH ?? ''
/** The first one that other users may run: a home folder's is closed to them. */
export const PYTHON = ['/usr/bin/python3', '/usr/local/bin/python3'].find(path => existsSync(path)) ?? 'python3'

function findObstacle(language: Language): string | null {
  // Its workers are started as those of go are, and a build takes longer than all the rest.
  if (language === 'rust' && process.env.FNGW_TEST_RUST_USERS === undefined)
    return 'set FNGW_TEST_RUST_USERS to build it'
  if (language === 'go' || language === 'rust') return missingToolchain(language)
  return findProgram(language === 'ts' ? 'node' : language, { python: PYTHON }, PATH).problem
}

export const LANGUAGES = (Object.keys(HANDLERS) as Language[]).filter(language => {
  const problem = findObstacle(language)
  if (problem !== null) t.comment(`${language} is left out: ${problem}`)
  return problem === null
})

/** In the environment of each function, behind it the language. */
export const SECRET = 'planted-in-fn-env'

export function makeRoot(t: Test, languages: readonly Language[]): ReturnType<typeof makeTree> {
  const tree = makeTree()
  t.teardown(() => tree.cleanup())
  chmodSync(tree.root, 0o755)
  for (const language of languages) {
    const [file, source] = HANDLERS[language]
    tree.write({
      [`${language}/${file}`]: source,
      [`${language}/fn.config.json`]: { json: { timeout_ms: 20_000, invoke: { methods: ['POST'] } } },
      [`${language}/fn.env.json`]: { json: { OWN: `${SECRET}-${language}` } },
    })
    chmodSync(tree.path(`${language}/fn.env.json`), 0o600)
  }
  return tree
}

/**
 * A `go` that begins with what this user compiled already. A function that is built by a user of its own would compile the standard
 * library too, which takes a processor 20 s.
 * @returns full path of the program, for FN_GO_BIN
 */
export async function startedGo(t: Test): Promise<string> {
  const bed = makeBuilds({ 'go/handler.go': HANDLERS.go[1] })
  await bed.builds.prepare(bed.fn('go/handler.go'))
  await bed.close()
  const [program, cache] = ['echo $(command -v go)', 'go env GOCACHE'].map(command =>
    execFileSync('sh', ['-c', command], { encoding: 'utf8' }).trim(),
  )
  const tree = makeTree()
  t.teardown(() => tree.cleanup())
  const own = '"$HOME/.cache/go-build"'
  const copy = `[ "$1" != build ] || [ -e ${own} ] || { mkdir -p "$HOME/.cache" && cp -R '${tree.path('cache')}' ${own}; }`
  tree.write({ go: `#!/bin/sh\n${copy}\nexec '${program}' "$@"\n` })
  execFileSync('cp', ['-R', cache!, tree.path('cache')])
  execFileSync('chmod', ['-R', 'a+rX', tree.root])
  chmodSync(tree.path('go'), 0o755)
  return tree.path('go')
}

export async function serve(
  t: Test,
  languages: readonly Language[],
  settings: object,
): Promise<{ gateway: Gateway; root: string }> {
  const tree = makeRoot(t, languages)
  const gateway = await createGateway({
    functionsRoot: tree.root,
    runtimes: [...new Set(languages.map(language => (language === 'ts' ? 'node' : language)))],
    binaries: { python: PYTHON },
    env: { ...process.env, ...shareCrates() },
    ...settings,
  })
  t.teardown(() => gateway.close())
  return { gateway, root: tree.root }
}

export async function run(gateway: Gateway, language: Language, command: string): Promise<string> {
  const answer = await injectBuilt(gateway, { method: 'POST', url: `/${language}`, body: command })
  return answer.status === 200 ? answer.text().trim() : `status ${answer.status}: ${answer.text()}`
}
