// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/operatortest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

const (
	baseURL = "https://127.0.0.1:8443"
	podIP   = "10.1.0.5"
)

// config is an administrator's of the cluster that the tests share, apart by namespace.
var config *rest.Config

// world is a cluster, a service that trusts it, and the tokens that a kubelet would write.
type world struct {
	*operatortest.World
	clients *kubernetes.Clientset
	tenant  *servicetest.Tenant
	cluster *account.Cluster
	tokens  string                   // folder of the token files, named like the roles
	next    *accounttest.TokenSigner // signs with nextKey
}

func newWorld(t *testing.T) *world {
	t.Helper()
	service := servicetest.Start(t, func(o *service.Options) { o.BaseURL = baseURL })
	w := &world{World: operatortest.New(t, config, service), tenant: service.Tenant(), tokens: t.TempDir()}
	var err error
	w.clients, err = kubernetes.NewForConfig(config)
	must.Succeed(t, err)
	for _, role := range account.SubjectRoles() {
		w.Kube.MustCreate(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace,
			Name: accountOf(role)}})
	}
	w.trustCluster()
	return w
}

// accountOf returns the name of the chart's ServiceAccount for a role.
func accountOf(role account.SubjectRole) string {
	if role == account.RoleOperator {
		return operatortest.Release + "-manager"
	}
	return operatortest.Release + "-" + string(role)
}

// raw is `kubectl get --raw`.
func (w *world) raw(path string) []byte {
	w.Helper()
	b, err := w.clients.RESTClient().Get().AbsPath(path).DoRaw(w.Context())
	must.Succeed(w, err)
	return b
}

// trustCluster makes the account trust the cluster's keys, and the ServiceAccounts of the chart.
func (w *world) trustCluster() {
	w.Helper()
	var discovery struct {
		Issuer string `json:"issuer"`
	}
	must.Succeed(w, json.Unmarshal(w.raw("/.well-known/openid-configuration"), &discovery))
	keys, err := account.ParseKeySet(w.raw("/openid/v1/jwks"))
	if err != nil || len(keys.Keys) != 2 {
		w.Fatalf("the API server publishes %d keys: %v", len(keys.Keys), err)
	}
	w.next = accounttest.SignerOf(nextKeyID, "ES256", nextKey)
	keys.Keys = slices.DeleteFunc(keys.Keys, func(k account.ClusterKey) bool { return k.KeyID == nextKeyID })
	var subjects []account.SubjectPatch
	for _, role := range account.SubjectRoles() {
		subjects = append(subjects, account.SubjectPatch{Namespace: w.Namespace, ServiceAccount: accountOf(role),
			Role: role})
	}
	w.cluster, err = w.tenant.Store.CreateCluster(w.Context(), w.tenant.Caller(), account.ClusterPatch{
		Name: ptr.To("prod"), Issuer: &discovery.Issuer, JWKS: &keys, Subjects: &subjects})
	must.Succeed(w, err)
}

func (w *world) patchCluster(p account.ClusterPatch) {
	w.Helper()
	if _, err := w.tenant.Store.PatchCluster(w.Context(), w.tenant.Caller(), w.cluster.ID, p); err != nil {
		w.Fatal(err)
	}
}

func (w *world) audience() string { return account.TokenAudience(baseURL, w.tenant.Account) }

func (w *world) tokenFile(role account.SubjectRole) string {
	return filepath.Join(w.tokens, string(role))
}

// writeToken replaces a token file at once, as the kubelet does.
func (w *world) writeToken(role account.SubjectRole, token string) {
	w.Helper()
	next := w.tokenFile(role) + ".next"
	must.Succeed(w, os.WriteFile(next, []byte(token), 0o600))
	must.Succeed(w, os.Rename(next, w.tokenFile(role)))
}

// requestTokens writes a token of the API server for every role, for an hour as the chart asks.
func (w *world) requestTokens() {
	w.Helper()
	for _, role := range account.SubjectRoles() {
		w.writeToken(role, w.requestToken(role))
	}
}

func (w *world) requestToken(role account.SubjectRole) string {
	w.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{w.audience()}, ExpirationSeconds: ptr.To[int64](3600)}}
	answer, err := w.clients.CoreV1().ServiceAccounts(w.Namespace).CreateToken(w.Context(), accountOf(role), request,
		metav1.CreateOptions{})
	must.Succeed(w, err)
	return answer.Status.Token
}

// serviceAccountUID returns the UID of a role's ServiceAccount.
func (w *world) serviceAccountUID(role account.SubjectRole) string {
	w.Helper()
	var sa corev1.ServiceAccount
	key := client.ObjectKey{Namespace: w.Namespace, Name: accountOf(role)}
	must.Succeed(w, w.Kube.Get(w.Context(), key, &sa))
	return string(sa.UID)
}

// credentials are those of a role.
func (w *world) credentials(role account.SubjectRole) options.Credentials {
	return options.Credentials{ServiceAccountTokenFile: w.tokenFile(role)}
}

func (w *world) startManager() {
	w.Helper()
	w.StartManager(w.credentials(account.RoleOperator),
		func(o *operator.ManagerOptions) { o.Substitutes.Metrics = prometheus.NewRegistry() })
}

// startExporter exports a Service that answers with what is written to it.
func (w *world) startExporter() {
	w.Helper()
	w.Kube.CreatePod(w.Target, "echo", podIP)
	w.Kube.CreateService(w.Target, "echo", "echo", 5432)
	w.Kube.MustCreate(&v1alpha1.AgentEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: w.Target, Name: "echo"},
		Spec: v1alpha1.AgentEndpointSpec{URL: "tcp://echo." + w.Target + ":5432",
			Upstream: v1alpha1.Upstream{URL: "tcp://echo:5432"}}})
	echo := servicetest.ServeTCP(w.T, servicetest.Echo)
	w.StartExporter(w.credentials(account.RoleExporter), func(o *exporter.Options) {
		o.DialUpstream = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, echo)
		}
	})
}

// dial connects with the exported Service as a pod does, through the forwarder.
func (w *world) dial() (net.Conn, error) {
	address, err := w.ForwarderAddress("echo")
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(w.Context(), "tcp", address)
	if err != nil {
		return nil, err
	}
	if err := echoes(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// echoes sends a byte and waits for it to come back.
func echoes(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "x"); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

// waitConn waits until a pod's connection is answered, and returns it.
func (w *world) waitConn() (conn net.Conn) {
	w.Helper()
	wait.Until(w, "the exported Service answering through the forwarder", func() bool {
		var err error
		conn, err = w.dial()
		return err == nil
	})
	w.Cleanup(func() { _ = conn.Close() })
	return conn
}

// condition returns a condition of the KubernetesOperator as "Status Reason" and message.
func (w *world) condition(typ string) (statusAndReason, message string) {
	var o v1alpha1.KubernetesOperator
	key := client.ObjectKey{Namespace: w.Namespace, Name: operatortest.Release}
	if err := w.Kube.Get(w.Context(), key, &o); err != nil {
		return "", ""
	}
	c := meta.FindStatusCondition(o.Status.Conditions, typ)
	if c == nil {
		return "", ""
	}
	return string(c.Status) + " " + c.Reason, c.Message
}

// apiStatus calls the account's API with a token.
func (w *world) apiStatus(token string) int {
	w.Helper()
	request := w.Service.NewAPIRequest(http.MethodGet, "/endpoints", nil)
	request.Header.Set("Authorization", "Bearer "+token)
	res, err := w.Service.NewAPITransport().RoundTrip(request)
	must.Succeed(w, err)
	_ = res.Body.Close()
	return res.StatusCode
}
