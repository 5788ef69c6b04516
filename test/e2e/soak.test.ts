import t from 'tap'
import { soak } from '../soak/soak.ts'

t.setTimeout(600_000)

const skip =
  process.env.FNGW_TEST_LONG !== '1' && 'takes a minute and a half: set FNGW_TEST_LONG=1, or run npm run soak'

t.test(
  '[reliability.10] mixed traffic beside kills, edits and broken files loses, doubles and crosses nothing',
  { skip },
  async t => {
    const { wrong, requests } = await soak({ seconds: 60, seed: 20_260 })
    t.same(wrong, [])
    t.ok(requests > 500, `${requests} requests`)
  },
)
