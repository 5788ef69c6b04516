// @summary List the products (TypeScript)
import { readFileSync } from 'node:fs'
import type { FnEvent } from 'fngw'

interface Product {
  sku: string
  name: string
  cents: number
  grams: number
}

const products: Product[] = JSON.parse(readFileSync(`${__dirname}/../_products.json`, 'utf8'))

export function handler({ query }: FnEvent): Product[] {
  const most = Number(query.max_cents ?? Number.POSITIVE_INFINITY)
  return products.filter(({ cents }) => cents <= most)
}
