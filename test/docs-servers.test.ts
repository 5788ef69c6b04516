/** Recipes whose functions use a server: it runs here, on a free port. */

import { existsSync } from 'node:fs'
import t from 'tap'
import { followPage, languagesOf } from './docs/follow-page.ts'
import { readMail, startMailServer } from './docs/servers.ts'

t.setTimeout(280_000)

t.test('[docs.1, docs.2, docs.16] docs/recipes/mail.md sends what it says, once, also after a failure', async t => {
  const page = 'docs/recipes/mail.md'
  const server = await startMailServer(t)
  const hasPhpMailer = existsSync('/usr/share/php/libphp-phpmailer')
  if (!hasPhpMailer) t.comment('not run in PHP: libphp-phpmailer is not installed')
  const languages = languagesOf(page).filter(language => language !== 'php' || hasPhpMailer)
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
