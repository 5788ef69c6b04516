/** Recipes whose functions use packages, or a server: it runs here, on a free port. */

import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { readDocBlocks } from './docs/blocks.ts'
import { followBlocks, followPage, languagesOf } from './docs/follow-page.ts'
import { readPage } from './docs/pages.ts'
import { findPostgres, readMail, startMailServer, startPostgres, startS3 } from './docs/servers.ts'
import { DocSession } from './docs/session.ts'
import { makeTree } from './helpers/tree.ts'

/** Packages that the checkout does not have come from the registries: `npm run test:registry`. */
const hasRegistry = process.env.FNGW_TEST_REGISTRY === '1'
const noRegistry = !hasRegistry && 'its packages come from the registry: npm run test:registry'
t.setTimeout(hasRegistry ? 1_200_000 : 280_000)

const phpModules = spawnSync('php', ['-m'], { encoding: 'utf8' }).stdout ?? ''

/** Languages of a page, without those whose driver is missing: the reason is printed. */
function withDrivers(t: Test, page: string, missing: Record<string, string | false>): string[] {
  return languagesOf(page).filter(language => {
    const reason = missing[language] ?? false
    if (reason !== false) t.comment(`${page} is not run in ${language}: ${reason}`)
    return reason === false
  })
}

/** Files with the dependencies of a compiled function, in the form that the page shows. */
function writeManifests(session: DocSession, page: string, fn: string, languages: string[], goModule: string): void {
  for (const language of languages.filter(one => one === 'go' || one === 'rust')) {
    const cwd = join(session.folder, `functions/in-${language}/${fn}`)
    mkdirSync(cwd, { recursive: true })
    if (language === 'go') {
      execFileSync('go', ['mod', 'init', fn], { cwd, stdio: 'pipe' })
      execFileSync('go', ['get', goModule], { cwd, stdio: 'pipe' })
    } else {
      const manifest = readDocBlocks(readPage(page)).find(({ language }) => language === 'toml')!
      writeFileSync(join(cwd, 'Cargo.toml'), manifest.text)
    }
  }
}

/** Reads a page that is not run. */
async function readBlocks(t: Test, page: string, reason: string): Promise<void> {
  t.comment(`${page} is not run: ${reason}`)
  const session = new DocSession()
  t.teardown(() => session.end())
  for (const block of readDocBlocks(readPage(page))) {
    const { failure } = await session.follow({ ...block, marker: `not run: ${reason}` })
    t.equal(failure, undefined, `${page}:${block.line}`)
  }
}

t.test('[docs.1, docs.2, docs.16] docs/recipes/mail.md sends what it says, once, also after a failure', async t => {
  const page = 'docs/recipes/mail.md'
  const server = await startMailServer(t)
  const languages = withDrivers(t, page, {
    php: !existsSync('/usr/share/php/libphp-phpmailer') && 'libphp-phpmailer is not installed',
  })
  const session = await followPage(t, page, {
    languages,
    addresses: { '127.0.0.1:1025': server.address },
    packages: ['nodemailer'],
  })

  const mail = (to: string, subject: string, text: string) => ({
    From: ['shop@example.com'],
    To: [to],
    Bcc: null,
    Subject: [subject],
    text,
  })
  const report = mail('owner@example.com', 'Weekly report', 'Orders: 42')
  const order = mail('ada@example.com', 'Your order', 'It is on its way.')
  t.match(
    server.received.map(readMail),
    languages.flatMap(() => [report, order]),
  )

  server.received.length = 0
  server.refuseHalf()
  const again = {
    line: 0,
    language: 'console',
    marker: null,
    isTab: false,
    text: `$ fngw jobs create mail -H 'Content-Type: application/json' -d '{"text": "Zo\u00eb"}' --max-attempts 3 --wait
...done...2/3...204...`,
  }
  t.same(await session.follow(again), {})
  t.match(
    server.received.map(readMail),
    languages.map(() => ({ ...report, text: 'Zo\u00eb', 'Message-ID': [/^<job.*\.shop@example\.com>$/] })),
  )
})

const postgres = findPostgres()

t.test('[docs.1, docs.2, docs.16] docs/recipes/postgres.md does what it says', async t => {
  const page = 'docs/recipes/postgres.md'
  if (postgres === null) return readBlocks(t, page, 'postgresql is not installed')
  const address = await startPostgres(t, postgres)
  const languages = withDrivers(t, page, {
    python: noRegistry,
    go: noRegistry,
    rust: noRegistry,
    php: !phpModules.includes('pdo_pgsql') && 'php-pgsql is not installed',
  })
  const session = new DocSession({ languages, addresses: { '127.0.0.1:5432': address }, packages: ['pg'] })
  t.teardown(() => session.end())
  writeManifests(session, page, 'orders', languages, 'github.com/jackc/pgx/v5/pgxpool')
  await followBlocks(t, page, session)

  // Connections that the server closes are replaced.
  const database = `postgres://app:for-development@${address}/app`
  const query = (sql: string) => execFileSync('psql', ['-qtA', database, '-c', sql], { encoding: 'utf8' }).trim()
  query("UPDATE stock SET count = 1000 WHERE item = 'tea'")
  const order = async (language: string) => {
    const headers = { 'content-type': 'application/json' }
    const body = '{"item": "tea", "count": 1}'
    const response = await fetch(`${session.gateway.url}/in-${language}/orders`, { method: 'POST', headers, body })
    await response.text()
    return response.status
  }
  const open = "FROM pg_stat_activity WHERE datname = 'app' AND pid <> pg_backend_pid()"
  for (const language of languages) {
    t.equal(await order(language), 201, language)
    const connections = query(`SELECT pid ${open}`).split('\n')
    t.equal(await order(language), 201, language)
    const further = query(`SELECT pid ${open}`)
      .split('\n')
      .filter(pid => !connections.includes(pid))
    // Each thread of Rust has a connection, and another one may take the second call.
    if (language !== 'rust') t.same(further, [], `${language} uses its connection again`)
  }
  query(`SELECT pg_terminate_backend(pid, 5000) ${open}`)
  for (const language of languages) {
    // A pool of Node learns of the end from its event loop, which a call may come before.
    if (/^[jt]s$/.test(language)) await order(language)
    t.equal(await order(language), 201, `${language} after its connections were closed`)
  }
})

t.test('[docs.1, docs.2, docs.16] docs/recipes/thumbnails.md does what it says', async t => {
  const page = 'docs/recipes/thumbnails.md'
  const languages = withDrivers(t, page, {
    js: noRegistry,
    python: noRegistry,
    php: !phpModules.includes('\ngd\n') && 'php-gd is not installed',
  })
  if (languages.length === 0) return readBlocks(t, page, 'no library for images is installed')
  const session = await followPage(t, page, { languages })
  const photo = readFileSync(join(session.folder, 'photo.png'))
  // The header says that there are more bytes than came.
  const damaged = photo.subarray(0, 100)
  for (const language of languages) {
    const send = (body: Buffer) =>
      fetch(`${session.gateway.url}/in-${language}/thumbnail`, { method: 'POST', body: Uint8Array.from(body) })
    const webp = Buffer.from(await (await send(photo)).arrayBuffer())
    t.equal(webp.toString('latin1', 8, 15), 'WEBPVP8', language)
    t.same([webp.readUInt16LE(26) & 0x3fff, webp.readUInt16LE(28) & 0x3fff], [256, 192], language)
    const refused = await send(damaged)
    t.same([refused.status, await refused.json()], [400, { error: 'the image is damaged' }], language)
  }
})

const hasS3 = spawnSync('python3', ['-c', 'import moto.server, flask']).status === 0
const noS3 = !hasS3 && 'moto is not installed: pip install "moto[server]"'

t.test('[docs.1, docs.2, docs.16] docs/recipes/s3.md does what it says', async t => {
  const page = 'docs/recipes/s3.md'
  const reason = noRegistry || noS3
  if (reason !== false) return readBlocks(t, page, reason)
  await followPage(t, page, { languages: languagesOf(page), addresses: { '127.0.0.1:5000': await startS3(t) } })
})

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
const noSqlite = (major < 22 || (major === 22 && minor < 13)) && 'Node has no node:sqlite before 22.13'

t.test('[docs.1, docs.2, docs.16] docs/recipes/sqlite.md does what it says', async t => {
  const page = 'docs/recipes/sqlite.md'
  const languages = withDrivers(t, page, {
    js: noSqlite,
    ts: noSqlite,
    go: noRegistry,
    rust: noRegistry,
    php: !phpModules.includes('pdo_sqlite') && 'php-sqlite3 is not installed',
  })
  const tree = makeTree({})
  t.teardown(tree.cleanup)
  const session = new DocSession({ languages, addresses: { '/tmp/shop': tree.root } })
  t.teardown(() => session.end())
  writeManifests(session, page, 'visits', languages, 'modernc.org/sqlite')
  await followBlocks(t, page, session)
})
