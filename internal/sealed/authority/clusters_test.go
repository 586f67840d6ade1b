// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package authority_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
)

// TestCallers_FollowsClusters replaces files of clusters under a running agent, which keeps the last
// that is good, until its end or that of its authority.
func TestCallers_FollowsClusters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		owner, other := sealtest.NewOwner(t, accountID), sealtest.NewOwner(t, accountID)
		stranger := sealtest.NewOwner(t, "ac-16f0l2rj1qg4o3b5e6s7t8u9v0")
		a, b := owner.NewCluster("a"), owner.NewCluster("b")
		callers := owner.WriteCallers(dir, owner.SignClusters(time.Hour, a))
		payload := strings.Split(string(owner.SignClusters(0, b)), ".")[1]
		for _, step := range []struct {
			name     string
			clusters []byte // clusters is nil where nothing is written.
			wait     time.Duration
			a, b     string // a and b are why tokens of theirs are refused.
			problem  string
		}{
			{"one", nil, 0, "", "of no issuer, key", ""},
			{"two", owner.SignClusters(time.Minute, a, b), 10 * time.Second, "", "", ""},
			{"an older version", owner.SignClusters(time.Hour, a), 10 * time.Second, "", "", "older than what was"},
			{"of another root", other.SignClusters(0, a), 10 * time.Second, "", "",
				"signed by none of the authorities"},
			{"of another account", owner.SignClustersFor(stranger.Account, a), 10 * time.Second, "", "",
				"is not for fairlead-seal-clusters:" + accountID},
			{"a token", []byte(a.TokenBy(jose.SigningKey{Algorithm: jose.ES256, Key: owner.Key()}, nil)),
				10 * time.Second, "", "", "is not for fairlead-seal-clusters:"},
			{"unsigned", []byte("eyJhbGciOiJub25lIn0." + payload + "."), 10 * time.Second, "", "",
				"not what fairlead seal"},
			{"signed by HS256", []byte(a.TokenBy(jose.SigningKey{Algorithm: jose.HS256, Key: owner.Root.Raw}, nil)),
				10 * time.Second, "", "", "not what fairlead seal"},
			{"ended", owner.SignClusters(25*time.Hour, a), 10 * time.Second, "", "", "is in force from"},
			{"one again", owner.SignClusters(0, b), 10 * time.Second, "of no issuer, key", "", ""},
			{"near its end", nil, 17 * time.Hour, "of no issuer, key", "", "clusters.jws: its end is at"},
			{"after its end", nil, 8 * time.Hour, "is in force from", "is in force from", "its end is at"},
			{"signed again", owner.SignClusters(-25*time.Hour, b), 10 * time.Second, "of no issuer, key", "", ""},
		} {
			if step.clusters != nil {
				must.Succeed(t, os.WriteFile(callers.Clusters, step.clusters, 0o600))
			}
			time.Sleep(step.wait)
			check(t, step.name, callers.Problem(), step.problem)
			for c, want := range map[*sealtest.Cluster]string{a: step.a, b: step.b} {
				name, err := callers.VerifyToken(c.Token(nil))
				check(t, step.name+", token of "+c.Name, err, want)
				if (name == c.Name) != (want == "") || err != nil && name != "" {
					t.Errorf("%s: %q for a token of %s", step.name, name, c.Name)
				}
			}
		}
		other.WriteCallers(dir, owner.SignClusters(-25*time.Hour, b))
		time.Sleep(10 * time.Second)
		_, err := callers.VerifyToken(b.Token(nil))
		check(t, "its authority is gone", err, "by an authority that is not trusted any more")
	})
}

// TestRoot_SignsClustersThatAgentsRead holds that a file which agents could not read is not made.
func TestRoot_SignsClustersThatAgentsRead(t *testing.T) {
	t.Parallel()
	root, _ := makeRoot(t)
	cluster := sealtest.NewOwner(t, accountID).NewCluster("a")
	for n, want := range map[int]string{100: "", 400: "more than the 64 KiB that agents read"} {
		all := slices.Repeat([]authority.Cluster{{Name: "a", JWKS: cluster.KeySet()}}, n)
		_, err := root.SignClusters(all, time.Hour, time.Now())
		check(t, strconv.Itoa(n), err, want)
	}
}

func check(t *testing.T, name string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}

// TestFollowToken_OfItsAudienceOnly holds that tokens for others than agents are not sent, and that one
// which the kubelet has renewed is.
func TestFollowToken_OfItsAudienceOnly(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	synctest.Test(t, func(t *testing.T) {
		c := sealtest.NewOwner(t, accountID).NewCluster("a")
		source, good := authority.FollowToken(file, accountID), ""
		for _, step := range []struct{ name, text, problem string }{
			{"none", "", "no such file"},
			{"for the Kubernetes API", c.Token(sealtest.Claims{"aud": []string{c.Issuer}}), "not for fairlead-seal:"},
			{"for others, too", c.Token(sealtest.Claims{"aud": []string{"fairlead-seal:" + accountID, "x"}}),
				"is not for"},
			{"no claims", c.TokenBy(jose.SigningKey{Algorithm: jose.ES256, Key: c.Key}, sealtest.Claims{"iat": "x"}),
				"expected number"},
			{"an API key", "flk_secret", "no JSON Web Token"},
			{"the forwarders'", c.Token(nil) + "\n", ""},
			{"damaged", "x", "no JSON Web Token"},
			{"renewed", c.Token(sealtest.Claims{"jti": "2"}), ""},
			{"huge", strings.Repeat("x", 65<<10), "more than 64 KiB"},
		} {
			if step.text != "" {
				must.Succeed(t, os.WriteFile(file, []byte(step.text), 0o600))
			}
			if step.problem == "" {
				good = strings.TrimSpace(step.text)
			}
			time.Sleep(10 * time.Second)
			token, err := source()
			check(t, step.name, err, step.problem)
			if token != good || err != nil && strings.Contains(err.Error(), "flk_") {
				t.Errorf("%s: sends %q, %v", step.name, token, err)
			}
		}
	})
}
