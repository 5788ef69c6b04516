/** Filters that are on, each with a button that takes it off. Owner: page console/console. */

interface Chip {
  readonly name: string
  readonly text: string
}

export function Chips({ chips, onRemove }: { chips: readonly Chip[]; onRemove: (name: string) => void }) {
  return (
    <ul class="chips" aria-label="Active filters">
      {chips.map(({ name, text }) => (
        <li key={name}>
          <button type="button" onClick={() => onRemove(name)} aria-label={`Remove filter: ${text}`}>
            {text} <span aria-hidden="true">×</span>
          </button>
        </li>
      ))}
    </ul>
  )
}
