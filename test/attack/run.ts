/** `npm run attack`: every attack at its full size, one line each. Ends with 1 when something broke. */

import { buildProduct } from '../helpers/built.ts'
import type { Outcome } from './attack.ts'
import { ATTACKS, runAttack } from './attacks.ts'
import { attackDaemon } from './daemons.ts'
import { attackLinks } from './links.ts'
import { attackSeveral } from './several.ts'
import { startTarget } from './target.ts'
import { attackUsers, findUserObstacle } from './users.ts'

const product = buildProduct()
let broke = 0
const tell = (name: string, { broken, seen }: Outcome): void => {
  if (broken.length > 0) broke++
  process.stdout.write(
    `${broken.length === 0 ? 'held' : 'BROKE'}  ${name}: ${[...broken, seen].filter(Boolean).join('; ')}\n`,
  )
}
const target = await startTarget(product)
try {
  for (const attack of ATTACKS) tell(attack.name, await runAttack(attack, target, 'full'))
} finally {
  await target.close()
}
const obstacle = findUserObstacle()
if (obstacle !== null) process.stdout.write(`left out: FN_ISOLATION=user: ${obstacle}\n`)
const others: (readonly [name: string, attack: () => Promise<Outcome>])[] = [
  ...(obstacle === null
    ? [['FN_ISOLATION=user: functions and the packages they install', () => attackUsers(product)] as const]
    : []),
  ['links in every folder that is written', () => attackLinks(product)],
  ['strangers at a daemon with TLS and a secret', () => attackDaemon(product, 'full')],
  ['several gateways on one functions folder, killed in turn', () => attackSeveral(product, 'full')],
]
for (const [name, attack] of others)
  tell(name, await attack().catch((error: Error): Outcome => ({ broken: [error.message], seen: '' })))
product.cleanup()
process.stdout.write(`${ATTACKS.length + others.length - broke} held, ${broke} broke\n`)
process.exitCode = broke === 0 ? 0 : 1
