import t from 'tap'
import { parsePasswordHash } from '../../lib/config/texts.ts'

const SALT = 'ab'.repeat(16)
const DIGEST = 'cd'.repeat(32)

t.test('[control/session.6] hashes by scrypt and PBKDF2, none that is weak or ruinous', t => {
  t.match(parsePasswordHash(`scrypt:16384:8:1:${SALT}:${DIGEST}`), { kind: 'scrypt', cost: 16384, blockSize: 8 })
  t.match(parsePasswordHash(`pbkdf2-sha256:100000:${SALT}:${DIGEST}`), { kind: 'pbkdf2', iterations: 100_000 })
  const wrong = [
    '',
    'secret',
    `scrypt:8192:8:1:${SALT}:${DIGEST}`,
    `scrypt:16385:8:1:${SALT}:${DIGEST}`,
    `scrypt:16384:0:1:${SALT}:${DIGEST}`,
    `scrypt:16384:8:0:${SALT}:${DIGEST}`,
    `scrypt:524288:8:1:${SALT}:${DIGEST}`,
    `scrypt:131072:8:2:${SALT}:${DIGEST}`,
    `scrypt:16384:8:1:${SALT}:${DIGEST}x`,
    `scrypt:16384:8:1:abc:${DIGEST}`,
    `scrypt:16384:8:1::${DIGEST}`,
    `pbkdf2-sha256:99999:${SALT}:${DIGEST}`,
    `pbkdf2-sha256:9999999:${SALT}:${DIGEST}`,
    `pbkdf2-sha256:100000:${SALT}:abcd`,
    `sha256:${DIGEST}`,
  ]
  for (const text of wrong) t.equal(parsePasswordHash(text), null, text)
  t.end()
})
