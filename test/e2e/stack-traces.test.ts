import { spawnSync } from 'node:child_process'
import t from 'tap'
import { createGateway, type LogRecord } from '../../lib/index.ts'
import { missingToolchain } from '../helpers/compiled.ts'
import { RUNTIMES } from '../helpers/gateway-bed.ts'
import { makeTree } from '../helpers/tree.ts'

type Kind = 'handler' | 'helper' | 'package' | 'async' | 'load' | 'syntax'

interface Language {
  /** Why it cannot be tried here; null when it can. */
  missing: string | null
  /** Files by kind; the line that the error has to name ends in HERE. */
  files: Partial<Record<Kind, Readonly<Record<string, string>>>>
  /** Command line that runs what is at fault without the gateway; null where only the gateway runs it. */
  own: ((file: string) => readonly [program: string, ...args: string[]]) | null
}

const node = (extension: 'mjs' | 'ts', type: string): Language => {
  const file = `handler.${extension}`
  return {
    missing: null,
    files: {
      handler: { [file]: `\nexport const handler = (event${type}) => {\n  throw new Error('went wrong') // HERE\n}\n` },
      helper: {
        [file]: `import { check } from './_check.${extension}'\nexport const handler = () => check(1)\n`,
        [`_check.${extension}`]: `\n\nexport function check(value${type}) {\n  return value.missing.field // HERE\n}\n`,
      },
      package: {
        [file]: `import parse from 'strict-parse'\n\nexport const handler = (event${type}) => {\n  const text = 'x'\n  return parse(text) // HERE\n}\n`,
        'node_modules/strict-parse/package.json': '{ "name": "strict-parse", "main": "index.js" }',
        'node_modules/strict-parse/index.js': `module.exports = text => {\n  throw new Error('went wrong at ' + text)\n}\n`,
      },
      async: {
        [file]: `const later = () => new Promise(resolve => setImmediate(resolve))\n\nexport const handler = async (event${type}) => {\n  await later()\n  throw new TypeError('went wrong') // HERE\n}\n`,
      },
      load: { [file]: `\n\nthrow new Error('went wrong') // HERE\nexport const handler = () => 1\n` },
      syntax: { [file]: `\nexport const handler = () => {\n  return 1 +* 2 // HERE\n}\n` },
    },
    own: path => [
      process.execPath,
      ...(extension === 'ts' ? ['--import', import.meta.resolve('tsx')] : []),
      '--input-type=module',
      '-e',
      `const loaded = await import(${JSON.stringify(path)}); await (loaded.handler ?? loaded.default.handler)({})`,
    ],
  }
}

const RUST = 'use serde_json::Value;\n'

const LANGUAGES: Readonly<Record<string, Language>> = {
  'Node.js': node('mjs', ''),
  TypeScript: node('ts', ': any'),
  Python: {
    missing: RUNTIMES.includes('python') ? null : 'python3 is not installed',
    files: {
      handler: { 'handler.py': `\ndef handler(event):\n    raise ValueError('went wrong')  # HERE\n` },
      helper: {
        'handler.py': `from _check import check\n\ndef handler(event):\n    return check(1)\n`,
        '_check.py': `\n\ndef check(value):\n    return value.missing  # HERE\n`,
      },
      package: {
        'handler.py': `import json\n\ndef handler(event):\n    text = 'x'\n    return json.loads(text)  # HERE\n`,
      },
      async: {
        'handler.py': `import asyncio\n\nasync def handler(event):\n    await asyncio.sleep(0)\n    raise ValueError('went wrong')  # HERE\n`,
      },
      load: { 'handler.py': `\n\nraise ValueError('went wrong')  # HERE\n` },
      syntax: { 'handler.py': `\ndef handler(event):\n    return 1 +* 2  # HERE\n` },
    },
    own: path => [
      'python3',
      '-c',
      `import asyncio, os, runpy, sys\nsys.path.insert(0, os.path.dirname(${JSON.stringify(path)}))\nhandler = runpy.run_path(${JSON.stringify(path)})['handler']\nresult = handler({})\nasyncio.run(result)`,
    ],
  },
  PHP: {
    missing: RUNTIMES.includes('php') ? null : 'php is not installed',
    files: {
      handler: {
        'handler.php': `<?php\nfunction handler($event) {\n    throw new RuntimeException('went wrong'); // HERE\n}\n`,
      },
      helper: {
        'handler.php': `<?php\nrequire __DIR__ . '/_check.php';\nfunction handler($event) {\n    return check(null);\n}\n`,
        '_check.php': `<?php\n\nfunction check($value) {\n    return $value->missing(); // HERE\n}\n`,
      },
      package: {
        'handler.php': `<?php\nrequire __DIR__ . '/vendor/strict.php';\nfunction handler($event) {\n    return strict_parse('x'); // HERE\n}\n`,
        'vendor/strict.php': `<?php\nfunction strict_parse($text) {\n    throw new RuntimeException('went wrong at ' . $text);\n}\n`,
        'vendor/autoload.php': '<?php\n',
      },
      async: {
        'handler.php': `<?php\nfunction handler($event) {\n    return array_map(function ($n) {\n        return intdiv($n, 0); // HERE\n    }, [1]);\n}\n`,
      },
      load: { 'handler.php': `<?php\n\nthrow new RuntimeException('went wrong'); // HERE\n` },
      syntax: { 'handler.php': `<?php\nfunction handler($event) {\n    return 1 +* 2; // HERE\n}\n` },
    },
    own: path => [
      'php',
      '-d',
      'display_errors=stderr',
      '-d',
      'log_errors=0',
      '-r',
      `require ${JSON.stringify(path)}; handler([]);`,
    ],
  },
  Lua: {
    missing: null,
    files: {
      handler: { 'handler.lua': `\nfunction handler(event)\n  error('went wrong') -- HERE\nend\n` },
      helper: {
        'handler.lua': `local check = require('check')\nfunction handler(event)\n  return check(nil) .. ''\nend\n`,
        'check.lua': `\nreturn function(value)\n  return value.missing -- HERE\nend\n`,
      },
      package: {
        'handler.lua': `\nfunction handler(event)\n  local text = 'x'\n  local value = string.rep(text, {}) -- HERE\n  return value\nend\n`,
      },
      async: {
        'handler.lua': `function handler(event)\n  local step = coroutine.wrap(function()\n    coroutine.yield(1)\n    error('went wrong') -- HERE\n  end)\n  step()\n  return step() .. ''\nend\n`,
      },
      load: { 'handler.lua': `\n\nerror('went wrong') -- HERE\n` },
      syntax: { 'handler.lua': `\nfunction handler(event)\n  return 1 +* 2 -- HERE\nend\n` },
    },
    own: null,
  },
  Go: {
    missing: missingToolchain('go'),
    files: {
      handler: {
        'main.go': `package main\n\nfunc Handler(event map[string]any) any {\n\tpanic("went wrong") // HERE\n}\n`,
      },
      helper: {
        'main.go': `package main\n\nfunc Handler(event map[string]any) any {\n\treturn check(nil)\n}\n`,
        'check.go': `package main\n\nfunc check(values []int) any {\n\treturn values[3] // HERE\n}\n`,
      },
      package: {
        'main.go': `package main\n\nimport "regexp"\n\nfunc Handler(event map[string]any) any {\n\treturn regexp.MustCompile("(").String() // HERE\n}\n`,
      },
      syntax: { 'main.go': `package main\n\nfunc Handler(event map[string]any) any {\n\treturn 1 +) // HERE\n}\n` },
    },
    own: null,
  },
  Rust: {
    missing: missingToolchain('rust'),
    files: {
      helper: {
        'handler.rs': `${RUST}#[path = "_check.rs"]\nmod check;\n\npub fn handler(_event: Value) -> Value {\n    check::check(&[])\n}\n`,
        '_check.rs': `${RUST}\npub fn check(values: &[Value]) -> Value {\n    values[3].clone() // HERE\n}\n`,
      },
      syntax: { 'handler.rs': `${RUST}pub fn handler(_event: Value) -> Value {\n    1 + ; // HERE\n}\n` },
    },
    own: null,
  },
}

/** `file:line` of the marked line. */
function expectedPlace(files: Readonly<Record<string, string>>): string {
  for (const [file, text] of Object.entries(files)) {
    const line = text.split('\n').findIndex(one => one.endsWith('HERE'))
    if (line !== -1) return `${file}:${line + 1}`
  }
  throw new Error('no line is marked')
}

/** A place as each language writes it: `a.js:3`, `File "a.py", line 3`, `a.php on line 3`. */
function toTracePattern(place: string): RegExp {
  const [file = '', line = ''] = place.split(':')
  return new RegExp(`${file.replace('.', '\\.')}(?:"?,? (?:on )?line |[:(])${line}\\b`)
}

t.test('[core/errors.8] an error names the file and line of the user, as the language itself does', async t => {
  const present = Object.entries(LANGUAGES).filter(([name, { missing }]) => {
    if (missing !== null) t.pass(`${name} is left out: ${missing}`)
    return missing === null
  })
  const cases = present.flatMap(([name, { files, own }]) =>
    Object.entries(files).map(([kind, some]) => ({
      name,
      kind,
      files: some,
      own,
      fn: `${name.replace(/\W/g, '').toLowerCase()}-${kind}`,
    })),
  )
  const entries = cases.flatMap(({ fn, files }) => Object.entries(files).map(([file, text]) => [`${fn}/${file}`, text]))
  const tree = makeTree(Object.fromEntries(entries))
  const logs: LogRecord[] = []
  const gateway = await createGateway({
    functionsRoot: tree.root,
    runtimes: ['node', 'python', 'php', 'lua', 'go', 'rust'],
    depsWaitMs: 150_000,
    beforeStart: async opening => {
      opening.on('log', record => logs.push(record))
    },
  })
  t.teardown(async () => {
    await gateway.close({ timeoutMs: 0 })
    tree.cleanup()
  })
  await Promise.all(cases.map(async ({ fn }) => gateway.inject({ url: `/${fn}`, method: 'GET' })))
  for (const { name, kind, files, own, fn } of cases) {
    const place = expectedPlace(files)
    const title = `${name}, ${kind}: ${place}`
    const record = logs.find(log => log.fn === fn && log.detail !== undefined)
    const { file = '', line = 0, stack = '' } = record?.detail ?? {}
    t.equal(`${file}:${line}`, `${fn}/${place}`, title, { message: record?.message, stack })
    const inTrace = toTracePattern(place)
    if (kind !== 'syntax') t.match(stack, inTrace, `${title}, in the stack`)
    if (own === null) continue
    const [program, ...args] = own(tree.path(`${fn}/${Object.keys(files)[0]}`))
    t.match(spawnSync(program, args, { encoding: 'utf8' }).stderr, inTrace, `${title}, as the language says`)
  }
})
