<?php

namespace Shop;

/** An amount in cents. Half cents are rounded up. */
final class Money
{
    public function __construct(public int $cents)
    {
    }

    public function withTax(int $percent): self
    {
        return new self(intdiv($this->cents * (100 + $percent) + 50, 100));
    }

    public function minus(self $other): self
    {
        return new self($this->cents - $other->cents);
    }

    public function __toString(): string
    {
        return sprintf('%d.%02d EUR', intdiv($this->cents, 100), $this->cents % 100);
    }
}
