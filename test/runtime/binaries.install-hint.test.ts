import t from 'tap'
import { toInstallHint } from '../../lib/runtime/binaries.ts'

t.test('[runtime/daemon.16] a command where its package manager is, else the site', async t => {
  const on =
    (...paths: string[]) =>
    (path: string) =>
      paths.includes(path)
  const apt = on('/usr/bin/apt-get')
  t.equal(toInstallHint('php', false, apt), 'install it (apt-get install php-cli)')
  t.equal(toInstallHint('python', false, on('/sbin/apk')), 'install it (apk add python3)')
  t.equal(toInstallHint('python', false, on('/opt/homebrew/bin/brew')), 'install it (brew install python)')
  t.equal(toInstallHint('go', false, apt), 'install it from https://go.dev/dl/', 'the package is too old')
  t.equal(toInstallHint('php', false, on('/sbin/apk')), 'install it from https://www.php.net/downloads')
  t.equal(toInstallHint('php', false, on()), 'install it from https://www.php.net/downloads', 'nobody to ask')
  t.equal(toInstallHint('python', true, apt), 'install it from https://www.python.org/downloads/', 'too old')
  for (const runtime of ['node', 'rust'] as const) t.match(toInstallHint(runtime, false, apt), /^install it from https/)
  t.equal(toInstallHint('lua', false, apt), '')
  t.equal(
    toInstallHint('python', false, apt, true),
    'use the image target python or full',
    'nothing is installed in an image',
  )
})
