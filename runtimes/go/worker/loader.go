package fngwruntime

import "context"

// Handler lists the accepted signatures.
type Handler interface {
	func(map[string]any) map[string]any |
		func(map[string]any) (map[string]any, error) |
		func(map[string]any) any |
		func(map[string]any) (any, error) |
		func(any) any |
		func(any) (any, error) |
		func(context.Context, map[string]any) map[string]any |
		func(context.Context, map[string]any) (map[string]any, error) |
		func(context.Context, map[string]any) any |
		func(context.Context, map[string]any) (any, error)
}

type invoke func(context.Context, map[string]any) (any, error)

// toInvoke also tells whether the handler looks at its context: one is only made for those that do.
func toInvoke(handler any) (made invoke, wantsContext bool) {
	switch handler := handler.(type) {
	case func(map[string]any) map[string]any:
		return func(_ context.Context, event map[string]any) (any, error) { return handler(event), nil }, false
	case func(map[string]any) (map[string]any, error):
		return func(_ context.Context, event map[string]any) (any, error) { return handler(event) }, false
	case func(map[string]any) any:
		return func(_ context.Context, event map[string]any) (any, error) { return handler(event), nil }, false
	case func(map[string]any) (any, error):
		return func(_ context.Context, event map[string]any) (any, error) { return handler(event) }, false
	case func(any) any:
		return func(_ context.Context, event map[string]any) (any, error) { return handler(event), nil }, false
	case func(any) (any, error):
		return func(_ context.Context, event map[string]any) (any, error) { return handler(event) }, false
	case func(context.Context, map[string]any) map[string]any:
		return func(ctx context.Context, event map[string]any) (any, error) { return handler(ctx, event), nil }, true
	case func(context.Context, map[string]any) (map[string]any, error):
		return func(ctx context.Context, event map[string]any) (any, error) { return handler(ctx, event) }, true
	case func(context.Context, map[string]any) any:
		return func(ctx context.Context, event map[string]any) (any, error) { return handler(ctx, event), nil }, true
	case func(context.Context, map[string]any) (any, error):
		return func(ctx context.Context, event map[string]any) (any, error) { return handler(ctx, event) }, true
	}
	return nil, false
}
