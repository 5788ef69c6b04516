import { readdirSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import t from 'tap'
import { looksCut } from '../../lib/discovery/watch.ts'

/** A handler per language, with text that looks like code in comments and strings. */
const WHOLE: Record<string, string> = {
  'a.js': "// it's {\nexport const handler = e => ({ body: `a ( $` + e.id }) /* [ */\n",
  'a.ts': "type A = { x: string }\nexport const handler = (e: A): string => 'x(' + \"y{\" + '\\''\n",
  'a.mjs': 'export const list = [1, 2]\n',
  'a.py': 'def handler(event):\n    """It\'s a ( doc"""\n    # not open [\n    return {"x": \'{\'}\n',
  'a.php': "<?php\n// it's {\nfunction handler(array $e): array { # (\n  return ['x' => \"[\"];\n}\n",
  'a.lua':
    '--[[ if ( ]]\nlocal s = [[ function ]]\nfunction handler(e) -- do\n  if e then return "end (" end\n  repeat until true\n  for i = 1, 2 do end\nend\n',
  'a.go': 'package fn\n\nfunc handler(e map[string]any) any {\n\treturn map[string]any{"a": `{`, "b": \'[\'}\n}\n',
  'a.rs': 'pub fn handler<\'a>(e: Value) -> Value { // {\n    json!({"status": 200})\n}\n',
  'fn.config.json': '{"timeout_ms": 5}',
  'package.json': '\uFEFF{}',
}

t.test('[discovery/layouts.44] a whole text is whole, and cut at most places it is not', async t => {
  for (const [name, text] of Object.entries(WHOLE)) {
    t.notOk(looksCut(name, text), name)
    t.notOk(looksCut(name, text.trimEnd()), `${name} without its last line end`)
    let seen = 0
    const ends = text.trimEnd().length
    for (let at = 1; at < ends; at++) if (looksCut(name, text.slice(0, at))) seen++
    if (name === 'a.mjs') continue
    t.ok(seen / ends > 0.3, `${name}: ${seen} of ${ends} cuts are seen`)
  }
})

t.test('[discovery/layouts.44] what each language leaves open at a cut', async t => {
  const cases: [string, string][] = [
    ['a.js', 'export const handler = () => {'],
    ['a.js', 'const a = 1\n/* to be'],
    ['a.js', 'const a = `one'],
    ['a.js', 'const a ='],
    ['a.ts', 'import { a,'],
    ['a.py', 'def handler(event):'],
    ['a.py', 'def handler(event):\n    """doc'],
    ['a.py', 'x = [1,'],
    ['a.php', '<?php\nfunction handler($e) {\n  return'],
    ['a.lua', 'function handler(e)\n  return 1\n'],
    ['a.lua', 'function handler(e)\n  while true do\n  end\n'],
    ['a.lua', 'local t = [[ text'],
    ['a.go', 'package fn\n\nfunc handler('],
    ['a.rs', 'pub fn handler(e: Value) -> Value {'],
    ['fn.config.json', '{"timeout_ms": '],
    ['composer.json', ''],
  ]
  for (const [name, text] of cases) t.ok(looksCut(name, text), `${name} ${JSON.stringify(text)}`)
})

t.test('[discovery/layouts.44] other files are not judged, and long ones are walked once', async t => {
  for (const [name, text] of [
    ['tsconfig.json', '{ // comments are allowed here\n'],
    ['requirements.txt', 'a=='],
    ['go.sum', '('],
    ['data.csv', '(,'],
  ] as const)
    t.notOk(looksCut(name, text), name)
  const long = `${'const a = [\'(\', "[", `{`] // {\n'.repeat(8000)}export {`
  const startedAt = process.cpuUsage().user
  t.ok(looksCut('a.js', long))
  t.ok(process.cpuUsage(undefined).user - startedAt < 2_000_000, 'far from the square of its length')
})

t.test('[discovery/layouts.44] the handlers of the examples are whole', async t => {
  const root = join(import.meta.dirname, '../../examples')
  for (const entry of readdirSync(root, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue
    const path = join(entry.parentPath, entry.name)
    t.notOk(looksCut(basename(path), readFileSync(path, 'utf8')), path.slice(root.length))
  }
})
