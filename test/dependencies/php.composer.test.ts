import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { GatewayError } from '../../lib/core/errors.ts'
import { toComposerHostEnv } from '../../lib/core/host.ts'
import type { BuildTools, ToolResult } from '../../lib/dependencies/run-tool.ts'
import { ToolFailure } from '../../lib/dependencies/tool-failure.ts'
import { installWithComposer, toComposerError } from '../../lib/dependencies/php.ts'
import { ComposerManifest } from '../../lib/dependencies/composer-manifest.ts'

type Call = Parameters<BuildTools['run']>[0]

const TEXT = `{
  "require": {
    "acme/shape": "^1",
    "acme/frame": "*"
  }
}`

const MANIFEST = new ComposerManifest(TEXT, 'shop/cart/composer.json')

/** Composer that answers as told, one answer a call. */
function makeTools(...answers: Partial<ToolResult>[]) {
  const calls: Call[] = []
  const tools: BuildTools = {
    signal: new AbortController().signal,
    run: async call => {
      calls.push(call)
      return { code: 1, output: '', timedOut: false, problem: null, ...answers[calls.length - 1] }
    },
  }
  return { tools, calls }
}

/** A file that is Composer, or a program around it. */
function makeProgram(t: Test, text: string): string {
  const path = join(t.testdir(), 'composer')
  writeFileSync(path, text)
  chmodSync(path, 0o755)
  return path
}

const toInstall = (more: object = {}) => ({
  php: '/bin/php8',
  composer: '/nowhere/composer',
  cwd: '/sets/draft/tree/f',
  ceiling: '/sets',
  hasLock: false,
  plugins: [] as string[],
  allowSources: false,
  manifest: MANIFEST,
  ...more,
})

async function failureOf(output: string, more: Partial<ToolResult> = {}): Promise<GatewayError> {
  const { tools } = makeTools({ output, ...more })
  const error = await installWithComposer(toInstall(), tools).catch(thrown => thrown)
  if (error instanceof ToolFailure) return toComposerError(error, 'shop/cart', MANIFEST)
  throw error ?? new Error('it did not fail')
}

const OLD = `- Required package "acme/frame" is not present in the lock file.
- Required (in require-dev) package "acme/shape" is in the lock file as "1.0" but that does not satisfy your constraint "^2".
This usually happens when composer files are incorrectly merged or the composer.json file is manually edited.`

t.test(
  '[dependencies/php.6] a lock file is installed from; when it lacks something that is updated, and no more',
  async t => {
    const run = async (hasLock: boolean, ...answers: Partial<ToolResult>[]) => {
      const { tools, calls } = makeTools(...answers)
      const isOld = await installWithComposer(toInstall({ hasLock }), tools).catch(() => 'failed')
      return { isOld, commands: calls.map(({ args }) => args[0]), last: calls.at(-1)!.args }
    }
    t.match(await run(false, { code: 0 }), { isOld: false, commands: ['update'] })
    t.match(await run(true, { code: 0 }), { isOld: false, commands: ['install'] })
    const warning = 'Warning: The lock file is not up to date with the latest changes in composer.json. You may be'
    t.match(await run(true, { code: 0, output: warning }), { isOld: true, commands: ['install'] })
    const old = await run(true, { code: 4, output: OLD }, { code: 0 })
    t.match(old, { isOld: false, commands: ['install', 'update'] })
    t.same(old.last.slice(-4), ['--with-all-dependencies', '--', 'acme/frame', 'acme/shape'])
    t.match(await run(true, { code: 2 }), { isOld: 'failed', commands: ['install'] })
    t.match(await run(true, { code: null, timedOut: true }), { commands: ['install'] }, 'the time is used up')
  },
)

t.test('[dependencies/php.11] Composer is run by the PHP of the functions, a program around it by itself', async t => {
  const run = async (text: string | null) => {
    const { tools, calls } = makeTools({ code: 0 })
    const composer = text === null ? '/nowhere/composer' : makeProgram(t, text)
    await installWithComposer(toInstall({ composer }), tools)
    return calls[0]!.command === '/bin/php8' && calls[0]!.args[0] === composer
  }
  t.ok(await run('#!/usr/bin/env php\n<?php Phar::mapPhar();'))
  t.ok(await run('#!/usr/bin/php\n<?php\n'))
  t.ok(await run('<?php\n'))
  t.notOk(await run('#!/bin/sh\nexec php /opt/composer.phar "$@"\n'))
  t.notOk(await run(null))
})

t.test(
  '[dependencies/php.10, dependencies/php.11] no script and no plugin runs, no repository around it is asked',
  async t => {
    const { tools, calls } = makeTools({ code: 0 }, { code: 0 }, { code: 0 })
    await installWithComposer(toInstall(), tools)
    await installWithComposer(toInstall({ plugins: ['acme/plug'], allowSources: true }), tools)
    const [plain, open] = calls
    for (const flag of ['--no-scripts', '--no-plugins', '--no-dev', '--no-interaction'])
      t.ok(plain!.args.includes(flag))
    t.equal(plain!.args.at(-1), '--')
    t.match(plain!.env, { GIT_ALLOW_PROTOCOL: 'https', GIT_CEILING_DIRECTORIES: '/sets' })
    t.ok(open!.args.includes('--no-scripts'))
    t.notOk(open!.args.includes('--no-plugins'))
    t.notOk('GIT_ALLOW_PROTOCOL' in open!.env!)
  },
)

t.test('[dependencies/php.11] Composer sees its home and caches, proxies and certificates, and no secret', t => {
  const seen = {
    PATH: '/bin',
    HOME: '/h',
    COMPOSER_HOME: '/c',
    COMPOSER_CACHE_DIR: '/cache',
    COMPOSER_DISABLE_NETWORK: '1',
    https_proxy: 'http://p',
    SSL_CERT_FILE: '/pem',
    XDG_CACHE_HOME: '/x',
  }
  const hidden = {
    COMPOSER_AUTH: 'secret',
    COMPOSER_VENDOR_DIR: '/evil',
    COMPOSER: '/evil',
    PHPRC: '/evil',
    PHP_INI_SCAN_DIR: '/evil',
    GITHUB_TOKEN: 'secret',
    GIT_SSH_COMMAND: 'evil',
    FN_ADMIN_TOKEN: 'secret',
    UNSET: undefined,
  }
  t.same(toComposerHostEnv({ ...seen, ...hidden }), seen)
  t.end()
})

const solving = (...lines: string[]) =>
  `Loading composer repositories with package information\nUpdating dependencies
Your requirements could not be resolved to an installable set of packages.\n\n  Problem 1\n${lines.map(line => `    - ${line}\n`).join('')}
Potential causes:\n - A typo in the package name\n   see <https://getcomposer.org/> for more details.\n
Read <https://getcomposer.org/doc/articles/troubleshooting.md> for further common problems.`
const thrown = (text: string) =>
  `Loading composer repositories with package information\n\nIn File.php line 12:\n      \n  ${text}  \n      \n\nupdate [--with WITH] [-o|--x]\n\n`

t.test('[dependencies/php.12] an error of Composer becomes a line, a place and a hint', async t => {
  const lasting: [string, number, RegExp, RegExp][] = [
    [
      solving('Root composer.json requires acme/frame, it could not be found in any version, there may be a typo.'),
      4,
      /^install failed: shop\/cart\/composer\.json:4: shop\/cart: composer: Root composer\.json requires acme\/frame, it could not be found in any version, there may be a typo\.$/,
      /^no repository has acme\/frame/,
    ],
    [
      solving(
        'Root composer.json requires acme/shape ^9, found acme/shape[1.2.0] but it does not match the constraint.',
      ),
      3,
      /found acme\/shape\[1\.2\.0\]/,
      /^change the version of acme\/shape/,
    ],
    [
      solving('acme/frame 1 requires acme/x ^1 -> found acme/x[2] but it conflicts with another require.'),
      4,
      /conflicts with another/,
      /two packages require different versions/,
    ],
    [
      thrown('Could not parse version constraint ^1: Invalid version string'),
      3,
      /composer: Could not parse/,
      /correct composer\.json/,
    ],
    [
      thrown('acme/shape contains a Composer plugin which is blocked by your allow-plugins config.'),
      3,
      /blocked/,
      /allow_scripts/,
    ],
    [
      thrown('The checksum verification of the file failed (downloaded from https://h/x.zip)'),
      1,
      /checksum/,
      /delete composer\.lock/,
    ],
    [
      thrown('The `url` supplied for the path (../none) repository does not exist'),
      1,
      /path \(\.\.\/none\)/,
      /correct the path/,
    ],
  ]
  for (const [output, line, message, hint] of lasting) {
    const error = await failureOf(output)
    t.match(error.message, message, output)
    t.match(error.detail, { file: 'shop/cart/composer.json', line, hint }, output)
    t.notMatch(error.message, /Loading|update \[|getcomposer/)
  }
  const passing: [string, RegExp][] = [
    [
      thrown('curl error 6 while downloading https://repo.packagist.org/packages.json: Could not resolve host'),
      /check the network/,
    ],
    [
      thrown('The "https://repo.packagist.org/packages.json" file could not be downloaded: getaddrinfo failed'),
      /check the network/,
    ],
    [thrown('Could not authenticate against github.com'), /auth\.json/],
    [
      thrown('file_put_contents(): Write of 8192 bytes failed with errno=28 No space left on device'),
      /the disk is full/,
    ],
    [thrown("The artifact repository requires PHP's zip extension"), /install PHP's zip extension/],
    [thrown('The zip extension and unzip/7z commands are both missing, skipping.'), /install unzip/],
    [
      thrown('The HOME or COMPOSER_HOME environment variable must be set for composer to run correctly'),
      /COMPOSER_HOME/,
    ],
  ]
  for (const [output, hint] of passing) {
    const error = await failureOf(output)
    t.match(error.detail?.hint, hint, output)
    t.equal(error.detail?.file, undefined, 'tried again after a while')
  }
})

t.test('[dependencies/php.12] a Composer that hangs, cannot run, or says nothing or too much', async t => {
  t.match(
    (await failureOf('', { code: null, timedOut: true })).message,
    /composer took longer than 180 s and was stopped/,
  )
  t.match(
    (await failureOf('', { code: null, problem: 'cannot run /bin/php: ENOENT' })).message,
    /cannot run \/bin\/php/,
  )
  t.match((await failureOf('')).message, /^install failed: shop\/cart: composer: exited with code 1$/)
  t.ok((await failureOf('x'.repeat(100_000))).message.length < 1000)
  const cache =
    'Cannot create cache directory /root/.cache/composer/repo/, or directory is not writable. Proceeding without cache.'
  t.match(
    await failureOf(
      `${cache}\n${solving('Root composer.json requires acme/frame, it could not be found in any version.')}`,
    ),
    { detail: { file: 'shop/cart/composer.json', line: 4 } },
    'output beside the failure is not its cause',
  )
})
