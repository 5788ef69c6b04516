/** `npm run attack`: every attack at its full size, one line each. Ends with 1 when something broke. */

import { buildProduct } from '../helpers/built.ts'
import { ATTACKS, runAttack } from './attacks.ts'
import { attackLinks } from './links.ts'
import { startTarget } from './target.ts'

const product = buildProduct()
let broke = 0
const tell = (name: string, { broken, seen }: { broken: string[]; seen: string }): void => {
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
tell('links in every folder that is written', await attackLinks(product))
product.cleanup()
process.stdout.write(`${ATTACKS.length + 1 - broke} held, ${broke} broke\n`)
process.exitCode = broke === 0 ? 0 : 1
