<?php
/** A body that goes out in chunks: a large one, or one that a generator makes. Page: runtime/wire-protocol (15, 16). */

declare(strict_types=1);

namespace Fngw;

/** The connection closed while a stream was under way. */
final class HungUp extends \RuntimeException
{
}

final class Stream
{
    public bool $canceled = false;
    private Link $link;
    private int $id;
    /** Takes the frames that are there while the stream waits. @var \Closure(): void */
    private \Closure $sortFrames;
    /** Bytes that may be sent before the gateway grants more. */
    private int $window = STREAM_WINDOW_BYTES;

    /** @param \Closure(): void $sortFrames */
    public function __construct(Link $link, int $id, \Closure $sortFrames)
    {
        $this->link = $link;
        $this->id = $id;
        $this->sortFrames = $sortFrames;
    }

    public function grant(mixed $bytes): void
    {
        if (\is_int($bytes) && $bytes > 0) {
            $this->window = \min($this->window + $bytes, STREAM_WINDOW_BYTES);
        }
    }

    /** @return string the frame that ends it */
    public function sendLarge(string $header, string $body): string
    {
        $this->begin($header, ',"length":' . \strlen($body));
        $this->sendPiece($body);
        return $this->end('');
    }

    /** @return string the frame that ends it @throws \Throwable what the generator throws before its first piece */
    public function sendPieces(string $header, \Generator $pieces): string
    {
        if (!\str_contains($header, '"text/event-stream')) {
            // Runs the generator up to its first piece: until then a failure is still an error and no cut answer. The head of
            // server-sent events goes out at once, as the first event may be long in coming.
            $pieces->rewind();
        }
        $this->begin($header, '');
        try {
            while ($pieces->valid() && !$this->canceled) {
                $piece = $pieces->current();
                if (!\is_string($piece) && !\is_int($piece) && !\is_float($piece) && !$piece instanceof \Stringable) {
                    $shown = EnvelopeMaker::describe($piece);
                    throw new ContractError("a piece of a streamed body must be text or bytes, got $shown");
                }
                $this->sendPiece((string) $piece);
                if (!$this->canceled) {
                    $pieces->next();
                }
            }
            $problem = '';
        } catch (ProtocolError | HungUp $error) {
            throw $error;
        } catch (\Throwable $error) {
            $problem = Failure::message($error);
        }
        return $this->end($problem);
    }

    private function begin(string $header, string $length): void
    {
        $head = \substr($header, 0, -1) . ',"stream":true' . $length . '}';
        $this->link->write(encodeFrame(Kind::REPLY, $this->id, $head));
    }

    private function sendPiece(string $piece): void
    {
        $bytes = \strlen($piece);
        for ($at = 0; $at < $bytes && !$this->canceled; $at += CHUNK_BYTES) {
            $chunk = $bytes > CHUNK_BYTES ? \substr($piece, $at, CHUNK_BYTES) : $piece;
            $this->waitFor(\strlen($chunk));
            if (!$this->canceled) {
                $this->window -= \strlen($chunk);
                $this->link->write(encodeFrame(Kind::CHUNK, $this->id, '', $chunk));
            }
        }
    }

    /** Waits until the gateway has room; notices a cancel even when it has. */
    private function waitFor(int $bytes): void
    {
        while (!$this->canceled && ($this->window < $bytes || $this->link->canRead())) {
            if (!$this->link->read()) {
                throw new HungUp('connection closed');
            }
            ($this->sortFrames)();
        }
    }

    private function end(string $problem): string
    {
        if ($this->canceled) {
            return encodeFrame(Kind::END, $this->id, '{"canceled":true}');
        }
        return $problem === ''
            ? encodeFrame(Kind::END, $this->id)
            : encodeFields(Kind::END, $this->id, ['error' => $problem]);
    }
}
