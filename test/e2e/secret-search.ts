/** Searches whatever a gateway shows for texts that it must not show, in the forms they may take on their way. */

export class SecretSearch {
  readonly #forms: readonly { name: string; form: string }[]
  /** `name in where`, each once. */
  readonly found = new Set<string>()
  /** Every place that was looked at. */
  readonly places = new Set<string>()

  /** @param secrets - name to text; texts of at least 12 characters, so that nothing else is one by chance */
  constructor(secrets: Readonly<Record<string, string>>) {
    this.#forms = Object.entries(secrets).flatMap(([name, secret]) => {
      if (secret.length < 12) throw new Error(`${name} is too short to be searched for`)
      return [...new Set(formsOf(secret))].map(form => ({ name, form }))
    })
  }

  look(where: string, bytes: Buffer | string): void {
    this.places.add(where)
    const text = typeof bytes === 'string' ? bytes : bytes.toString('latin1')
    const decoded = typeof bytes === 'string' ? Buffer.from(bytes).toString('latin1') : bytes.toString('utf8')
    for (const { name, form } of this.#forms)
      if (text.includes(form) || decoded.includes(form)) this.found.add(`${name} in ${where}`)
  }

  /** Where a secret was found. */
  placesOf(name: string): string[] {
    return [...this.found]
      .filter(text => text.startsWith(`${name} in `))
      .map(text => text.slice(name.length + 4))
      .sort()
  }
}

/** A text as it is, percent-encoded, in JSON, reversed, in hexadecimal digits, and in base64 at each offset. */
export function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret)
  const base64 = [0, 1, 2].flatMap(offset => {
    const padded = Buffer.concat([Buffer.alloc(offset), bytes])
    // The characters at both ends hold bits of the neighbours.
    const inner = padded
      .toString('base64')
      .replace(/=+$/, '')
      .slice(offset === 0 ? 0 : offset + 1, -1)
    return [inner, inner.replaceAll('+', '-').replaceAll('/', '_')]
  })
  return [
    secret,
    encodeURIComponent(secret),
    JSON.stringify(secret).slice(1, -1),
    [...secret].reverse().join(''),
    bytes.toString('hex'),
    ...base64,
  ]
}
