import { readFileSync } from 'node:fs'

const END = ''

/** For each pair of words in the text, the words that follow it. */
const followers = new Map()
const openings = []

for (const line of readFileSync(new URL('_corpus.txt', import.meta.url), 'utf8').trim().split('\n')) {
  const words = [...line.split(' '), END]
  openings.push(words.slice(0, 2))
  for (let i = 2; i < words.length; i++) {
    const pair = `${words[i - 2]} ${words[i - 1]}`
    followers.set(pair, [...(followers.get(pair) ?? []), words[i]])
  }
}

/** Numbers from 0 to 1 that are the same for the same seed: a generator by multiplication (Lehmer). */
function* randomNumbers(seed) {
  let state = (Math.abs(seed) % 2147483646) + 1
  for (;;) {
    state = (state * 48271) % 2147483647
    yield state / 2147483647
  }
}

/** The sentences that share the most words with the prompt. */
function findOpenings(prompt) {
  const asked = new Set(prompt.toLowerCase().match(/\p{L}+/gu) ?? [])
  const score = opening => opening.filter(word => asked.has(word.toLowerCase())).length
  const best = Math.max(...openings.map(score))
  return openings.filter(opening => score(opening) === best)
}

/** Words of sentences, without an end. */
export function* generate(prompt, seed) {
  const random = randomNumbers(seed)
  const pick = list => list[Math.floor(random.next().value * list.length)]
  for (let starts = findOpenings(prompt); ; starts = openings) {
    let [first, second] = pick(starts)
    yield first
    while (second !== END) {
      yield second
      const next = pick(followers.get(`${first} ${second}`))
      first = second
      second = next
    }
  }
}
