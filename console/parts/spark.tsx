/** A row of small columns beside a number that says the same in one. Owner: page console/overview. */

const WIDTH = 90
const HEIGHT = 20

export function Spark({ values }: { values: readonly number[] }) {
  const most = Math.max(1, ...values)
  const step = WIDTH / values.length
  const columns = values.map((value, index) => {
    // A single request is seen beside a thousand.
    const height = value === 0 ? 0 : Math.max(1, (value / most) * HEIGHT)
    return height === 0 ? '' : `M${index * step} ${HEIGHT}v${-height}h${step - 1}v${height}z`
  })
  return (
    <svg class="spark" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} width={WIDTH} height={HEIGHT} aria-hidden="true">
      <path d={columns.join('')} />
    </svg>
  )
}
