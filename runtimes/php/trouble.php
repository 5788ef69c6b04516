<?php
/**
 * Why no process could be started last. Page: runtime/daemon.
 */

declare(strict_types=1);

namespace Fngw;

final class Trouble
{
    /** For which it counts: nobody may ask for the next process of a runtime that is down. */
    private const KEPT_NS = 5_000_000_000;

    private ?string $reason = null;
    /** Monotonic ns until which that counts. */
    private int $until = 0;

    /** @param string|null $reason null: a process was started @return bool true when it is not what was known */
    public function set(?string $reason): bool
    {
        if ($reason !== null) {
            $this->until = \hrtime(true) + self::KEPT_NS;
        }
        $isNew = $reason !== $this->reason;
        $this->reason = $reason;
        return $isNew;
    }

    /** Null while processes can be started. */
    public function reason(): ?string
    {
        return \hrtime(true) < $this->until ? $this->reason : null;
    }
}
