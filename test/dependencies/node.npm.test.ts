import t from 'tap'
import type { BuildTools } from '../../lib/dependencies/run-tool.ts'
import { installWithNpm, rebuildWithNpm, toNpmEnv } from '../../lib/dependencies/node.ts'
import type { ToolResult } from '../../lib/dependencies/run-tool.ts'
import { ToolFailure } from '../../lib/dependencies/tool-failure.ts'

/** npm that answers as told, one answer a call. */
function makeTools(...answers: Partial<ToolResult>[]) {
  const calls: string[][] = []
  const tools: BuildTools = {
    signal: new AbortController().signal,
    run: async ({ args }) => {
      calls.push([...args])
      return { code: 1, output: '', timedOut: false, problem: null, ...answers[calls.length - 1] }
    },
  }
  return { tools, calls }
}

const INSTALL = {
  npm: '/bin/npm',
  cwd: '/tmp',
  hasLock: false,
  allowSources: false,
}

async function failureOf(output: string, more: Partial<ToolResult> = {}): Promise<ToolFailure> {
  const { tools } = makeTools({ output, ...more })
  const error = await installWithNpm(INSTALL, tools).catch(thrown => thrown)
  if (!(error instanceof ToolFailure)) throw error ?? new Error('it did not fail')
  return error
}

t.test('[dependencies/node.9] npm ci where a lock file is, npm install when that fails or none is', async t => {
  const commands = async (hasLock: boolean, ...answers: Partial<ToolResult>[]) => {
    const { tools, calls } = makeTools(...answers)
    await installWithNpm({ ...INSTALL, hasLock }, tools).catch(() => {})
    return calls.map(([command]) => command)
  }
  t.same(await commands(true, { code: 0 }), ['ci'])
  t.same(await commands(true, { code: 1 }, { code: 0 }), ['ci', 'install'])
  t.same(await commands(true, { code: null, timedOut: true }), ['ci'], 'the time is used up')
  t.same(await commands(false, { code: 0 }), ['install'])
})

t.test('[dependencies/node.15] no script runs, and names stand behind the end of options', async t => {
  const { tools, calls } = makeTools({ code: 0 }, { code: 0 }, { code: 0 })
  await installWithNpm(INSTALL, tools)
  await installWithNpm({ ...INSTALL, allowSources: true }, tools)
  await rebuildWithNpm(INSTALL, 'shop/cart', ['esbuild', '@a/b'], tools)
  await rebuildWithNpm(INSTALL, 'shop/cart', [], tools)
  t.equal(calls.length, 3)
  t.ok(calls[0]!.includes('--ignore-scripts') && calls[0]!.includes('--allow-git=none'))
  t.notOk(calls[1]!.includes('--allow-git=none'))
  t.same(calls[2]!.slice(-3), ['--', 'esbuild', '@a/b'])
  t.ok(calls[2]!.includes('--ignore-scripts=false'))
  const failing = makeTools({ output: 'npm error gyp: not found\n' })
  await t.rejects(rebuildWithNpm(INSTALL, 'shop/cart', ['esbuild'], failing.tools), {
    message: 'install failed: shop/cart: an install script of esbuild failed: gyp: not found',
  })
})

t.test('[dependencies/node.15] npm sees where packages come from, and no secret', async t => {
  const env = toNpmEnv({
    PATH: '/bin',
    HOME: '/h',
    NPM_CONFIG_REGISTRY: 'http://r',
    npm_config_cache: '/c',
    HTTPS_PROXY: 'http://p',
    npm_config_script_shell: '/evil',
    npm_config_git: '/evil',
    npm_config__auth: 'secret',
    'npm_config_//r/:_authToken': 'secret',
    NPM_TOKEN: 'secret',
    NODE_OPTIONS: '--require /evil',
    FN_ADMIN_TOKEN: 'secret',
    UNSET: undefined,
  })
  t.match(env, {
    PATH: '/bin',
    HOME: '/h',
    NPM_CONFIG_REGISTRY: 'http://r',
    npm_config_cache: '/c',
    HTTPS_PROXY: 'http://p',
  })
  t.notMatch(JSON.stringify(env), /secret|evil/)
})

const E404 = `npm warn Unknown user config "x".
npm error code E404
npm error 404 Not Found - GET http://127.0.0.1:1/lefft - not found
npm error 404
npm error 404  'lefft@*' is not in this registry.
npm error A complete log of this run can be found in: /h/.npm/_logs/x-debug-0.log
`

t.test('[dependencies/node.16] an error of npm becomes a line, a package and a hint', async t => {
  t.match(await failureOf(E404), {
    message: /^npm: code E404 \| 404 Not Found - GET \S+ - not found \| /,
    kind: 'lasting',
    packageName: 'lefft',
    hint: /^lefft is not in the registry/,
  })
  t.match(await failureOf(E404.replaceAll('lefft', '@a/other')), {
    packageName: '@a/other',
    hint: /^@a\/other is not in the registry/,
  })
  const newer = E404.replace("'lefft@*' is not in", "The requested resource 'lefft@*' could not be found in")
  t.match(await failureOf(newer), { packageName: 'lefft' })
  const short = 'npm error code E404\nnpm error 404 Not Found - GET https://r/npm/@a%2fother - Not found'
  t.match(await failureOf(short), { packageName: '@a/other', hint: /^@a\/other is not in the registry/ })
  for (const [output, kind, hint] of [
    [
      'npm error code ETARGET\nnpm error notarget No matching version found for left@^9.',
      'lasting',
      /no such version of left: npm view left/,
    ],
    ['npm error code ERESOLVE\nnpm error ERESOLVE unable to resolve', 'lasting', /change one of the ranges/],
    ['npm error code EINTEGRITY\nnpm error sha512-a wanted', 'lasting', /other content than the lock file/],
    ['npm error code EBADPLATFORM\nnpm error notsup', 'lasting', /does not run on this system/],
    ['npm error code ENOTFOUND\nnpm error network', 'passing', /check the network/],
    ['npm error code ENOSPC', 'passing', /the disk is full/],
    ['npm error code EACCES\nnpm error path /root/.npm', 'passing', /npm_config_cache/],
    ['npm error code E401', 'passing', /the registry requires a login/],
  ] as const)
    t.match(await failureOf(output), { kind, hint }, output)
})

t.test('[dependencies/node.16] an npm that hangs, cannot run, or says nothing or too much', async t => {
  t.match((await failureOf('', { code: null, timedOut: true })).message, /npm took longer than 180 s and was stopped/)
  t.match(await failureOf('', { code: null, problem: 'cannot run /bin/npm: ENOENT' }), {
    message: /cannot run \/bin\/npm: ENOENT/,
    kind: 'passing',
  })
  t.match(await failureOf(''), { message: 'npm: exited with code 1', kind: 'unknown' })
  t.ok((await failureOf('x'.repeat(100_000))).message.length < 1000)
})
