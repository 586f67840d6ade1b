// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// overloadPrefix begins the name of every overload of a function of this package.
const overloadPrefix = "policy_"

// maxText is the size in bytes of the largest text that functions make: a few replacements could
// make terabytes.
const maxText = 64 << 10

// functions returns the functions beyond CEL's own.
func functions() []cel.EnvOption {
	text, texts := cel.StringType, cel.ListType(cel.StringType)
	return []cel.EnvOption{
		onText("lowerAscii", strings.ToLower), onText("lower", strings.ToLower),
		onText("upperAscii", strings.ToUpper), onText("upper", strings.ToUpper),
		onText("trim", strings.TrimSpace),
		member("split", []*cel.Type{text, text}, texts, func(a []ref.Val) ref.Val {
			parts := strings.SplitN(str(a[0]), str(a[1]), maxParts+1)
			if len(parts) > maxParts {
				return types.NewErr("split makes at most %d parts", maxParts)
			}
			return types.DefaultTypeAdapter.NativeToValue(parts)
		}),
		member("join", []*cel.Type{texts, text}, text, func(a []ref.Val) ref.Val { return join(a[0], str(a[1])) }),
		member("replace", []*cel.Type{text, text, text}, text, func(a []ref.Val) ref.Val {
			return replaceText(str(a[0]), str(a[1]), str(a[2]))
		}),
		member("indexOf", []*cel.Type{text, text}, cel.IntType, func(a []ref.Val) ref.Val {
			before, _, found := strings.Cut(str(a[0]), str(a[1]))
			if !found {
				return types.Int(-1)
			}
			return types.Int(len([]rune(before)))
		}),
		member("substring", []*cel.Type{text, cel.IntType}, text, func(a []ref.Val) ref.Val {
			return substring(str(a[0]), a[1].(types.Int), types.Int(len([]rune(str(a[0])))))
		}),
		member("substring", []*cel.Type{text, cel.IntType, cel.IntType}, text, func(a []ref.Val) ref.Val {
			return substring(str(a[0]), a[1].(types.Int), a[2].(types.Int))
		}),
		global("inCidrRange", []*cel.Type{text, text}, cel.BoolType, func(a []ref.Val) ref.Val {
			return inRange(str(a[0]), str(a[1]))
		}),
		global("inCidrRange", []*cel.Type{text, texts}, cel.BoolType, inAnyRange),
		global("inCidrRanges", []*cel.Type{text, texts}, cel.BoolType, inAnyRange),
		global("rand.double", nil, cel.DoubleType, func([]ref.Val) ref.Val { return types.Double(rand.Float64()) }),
		global("rand.int", []*cel.Type{cel.IntType, cel.IntType}, cel.IntType, func(a []ref.Val) ref.Val {
			least, most := int64(a[0].(types.Int)), int64(a[1].(types.Int))
			if least < 0 || most < least {
				return types.NewErr("rand.int takes two numbers of which the second is not smaller")
			}
			return types.Int(least + int64(rand.Uint64N(uint64(most-least)+1)))
		}),
	}
}

const maxParts = 1024

func str(v ref.Val) string { s, _ := v.(types.String); return string(s) }

func overload(name string, args []*cel.Type) string {
	id := overloadPrefix + strings.ReplaceAll(name, ".", "_")
	for _, a := range args {
		id += "_" + strings.NewReplacer("(", "_", ")", "").Replace(a.String())
	}
	return id
}

func member(name string, args []*cel.Type, result *cel.Type, f func([]ref.Val) ref.Val) cel.EnvOption {
	return cel.Function(name, cel.MemberOverload(overload(name, args), args, result,
		cel.FunctionBinding(func(a ...ref.Val) ref.Val { return f(a) })))
}

func global(name string, args []*cel.Type, result *cel.Type, f func([]ref.Val) ref.Val) cel.EnvOption {
	return cel.Function(name, cel.Overload(overload(name, args), args, result,
		cel.FunctionBinding(func(a ...ref.Val) ref.Val { return f(a) })))
}

func onText(name string, f func(string) string) cel.EnvOption {
	return member(name, []*cel.Type{cel.StringType}, cel.StringType, func(a []ref.Val) ref.Val {
		return types.String(f(str(a[0])))
	})
}

func join(list ref.Val, separator string) ref.Val {
	var b strings.Builder
	it := list.(traits.Lister).Iterator()
	for first := true; it.HasNext() == types.True; first = false {
		if !first {
			b.WriteString(separator)
		}
		b.WriteString(str(it.Next()))
		if b.Len() > maxText {
			return tooLong()
		}
	}
	return types.String(b.String())
}

func replaceText(s, old, with string) ref.Val {
	if n := strings.Count(s, old); len(s)+n*(len(with)-len(old)) > maxText {
		return tooLong()
	}
	return types.String(strings.ReplaceAll(s, old, with))
}

func tooLong() ref.Val { return types.NewErr("a text has at most %d bytes", maxText) }

func substring(s string, from, to types.Int) ref.Val {
	runes := []rune(s)
	if from < 0 || to < from || to > types.Int(len(runes)) {
		return types.NewErr("substring from %d to %d of a text with %d characters", from, to, len(runes))
	}
	return types.String(runes[from:to])
}

func inAnyRange(a []ref.Val) ref.Val {
	for it := a[1].(traits.Lister).Iterator(); it.HasNext() == types.True; {
		if in := inRange(str(a[0]), str(it.Next())); in != types.False {
			return in
		}
	}
	return types.False
}

func inRange(address, network string) ref.Val {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return types.NewErr("%q is no IP address", truncate(address))
	}
	p, err := parsePrefix(network)
	if err != nil {
		return types.NewErr("%v", err)
	}
	return types.Bool(p.Contains(a.Unmap()))
}

// parsePrefix reads a CIDR, or an address as the network of itself.
func parsePrefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is neither an IP address nor a CIDR such as 10.0.0.0/8", truncate(s))
	}
	if p.Masked() != p {
		return netip.Prefix{}, fmt.Errorf("%q has bits beyond its prefix length; the network is %s", s, p.Masked())
	}
	return p, nil
}
