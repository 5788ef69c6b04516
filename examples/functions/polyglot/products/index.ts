// GET /products (TypeScript)
interface Product {
  id: number
  name: string
  cents: number
}

const products: Product[] = [
  { id: 1, name: 'Teapot', cents: 2400 },
  { id: 2, name: 'Cup', cents: 650 },
  { id: 3, name: 'Tray', cents: 1150 },
]

export function handler(event: { query: Record<string, string> }): Product[] {
  const most = Number(event.query.max_cents ?? Number.POSITIVE_INFINITY)
  return products.filter(product => product.cents <= most)
}
