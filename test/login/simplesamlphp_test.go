// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"bufio"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// requireSimpleSAML is the variable that makes tests fail, instead of being skipped, where there is
// no SimpleSAMLphp.
const requireSimpleSAML = "FAIRLEAD_REQUIRE_SIMPLESAML"

// simpleSAMLDir is where Debian puts SimpleSAMLphp.
const simpleSAMLDir = "/usr/share/simplesamlphp/www"

// simpleSAML is SimpleSAMLphp as an identity provider, at a host name of its own. It shares no
// library with the service.
type simpleSAML struct {
	*testing.T
	url string
	dir string
	log logbuffer.Buffer
}

// simpleSAMLSession is the duration of its sessions.
const simpleSAMLSession = 28800 * time.Second

const simpleSAMLConfig = `<?php
$dir = getenv('FAIRLEAD_SSP');
$config = [
 'baseurlpath' => 'http://' . $_SERVER['HTTP_HOST'] . '/',
 'certdir' => "$dir/", 'loggingdir' => "$dir/log/", 'datadir' => "$dir/data/", 'tempdir' => "$dir/tmp/",
  'cachedir' => "$dir/cache/",
 'technicalcontact_name' => 'test', 'technicalcontact_email' => 'test@example.org', 'timezone' => 'UTC',
 'secretsalt' => 'of-a-test-that-runs-on-loopback-only', 'auth.adminpassword' => 'of-a-test',
 'logging.level' => 5, 'logging.handler' => 'errorlog', 'logging.processname' => 'ssp', 'showerrors' => true,
  'errorreporting' => false,
 'debug' => ['saml' => false, 'backtraces' => true, 'validatexml' => false],
 'enable.saml20-idp' => true, 'module.enable' => ['exampleauth' => true, 'core' => true, 'saml' => true],
 'session.duration' => 28800, 'session.datastore.timeout' => 14400, 'session.state.timeout' => 3600,
 'session.cookie.name' => 'SSPSession', 'session.cookie.lifetime' => 0, 'session.cookie.path' => '/',
  'session.cookie.secure' => false, 'session.cookie.samesite' => null,
 'session.phpsession.cookiename' => 'SSP', 'session.phpsession.savepath' => "$dir/tmp",
  'session.phpsession.httponly' => true,
 'session.authtoken.cookiename' => 'SSPAuth', 'session.rememberme.enable' => false,
 'language.available' => ['en'], 'language.default' => 'en', 'theme.use' => 'default',
  'template.auto_reload' => true, 'usenewui' => true,
 'authproc.idp' => [], 'authproc.sp' => [], 'trusted.url.domains' => [], 'trusted.url.regex' => false,
 'metadata.sources' => [['type' => 'flatfile', 'directory' => "$dir/metadata"]],
 'store.type' => 'phpsession', 'proxy' => null,
];
`

const simpleSAMLUsers = `<?php
$config = ['admin' => ['core:AdminPassword'], 'userpass' => ['exampleauth:UserPass',
 'alice@example.com:alice-password' => ['uid' => ['ssp-alice'], 'mail' => ['alice@example.com'],
  'displayName' => ['Alice Ärmel'], 'groups' => ['eng', 'ops']],
 'bob@example.com:bob-password' => ['uid' => ['ssp-bob'], 'mail' => ['bob@example.com'], 'displayName' => ['Bob'],
  'groups' => ['sales']],
]];
`

const simpleSAMLHosted = `<?php
$metadata['http://' . $_SERVER['HTTP_HOST'] . '/idp'] = ['host' => '__DEFAULT__', 'privatekey' => 'idp.pem',
 'certificate' => 'idp.crt', 'auth' => 'userpass',
 'signature.algorithm' => 'http://www.w3.org/2001/04/xmldsig-more#rsa-sha256',
  'NameIDFormat' => 'urn:oasis:names:tc:SAML:2.0:nameid-format:persistent',
 'authproc' => [3 => ['class' => 'saml:AttributeNameID', 'attribute' => 'uid',
  'Format' => 'urn:oasis:names:tc:SAML:2.0:nameid-format:persistent']]];
`

// simpleSAMLRemote is saml20-sp-remote.php: the service providers are those of sp/*.json.
const simpleSAMLRemote = `<?php
foreach (glob(getenv('FAIRLEAD_SSP') . '/sp/*.json') as $f) {
 $sp = json_decode(file_get_contents($f), true);
 $metadata[$sp['entityid']] = $sp;
}
`

var phpStarted = regexp.MustCompile(`Development Server \(http://127\.0\.0\.1:(\d+)\) started`)

// startSimpleSAML starts SimpleSAMLphp until the test ends.
func startSimpleSAML(t *testing.T) *simpleSAML {
	t.Helper()
	php, err := exec.LookPath("php")
	if _, missing := os.Stat(simpleSAMLDir); err != nil || missing != nil {
		if os.Getenv(requireSimpleSAML) != "" {
			t.Fatalf("%s is set, but there is no SimpleSAMLphp: %v, %v", requireSimpleSAML, err, missing)
		}
		t.Skip("no SimpleSAMLphp (hack/deps.sh installs it)")
	}
	s := &simpleSAML{T: t, dir: t.TempDir()}
	for _, d := range []string{"config", "metadata", "sp", "log", "data", "tmp", "cache"} {
		must.Succeed(t, os.Mkdir(filepath.Join(s.dir, d), 0o700))
	}
	s.key()
	for name, text := range map[string]string{"config/config.php": simpleSAMLConfig,
		"config/authsources.php":         simpleSAMLUsers,
		"metadata/saml20-idp-hosted.php": simpleSAMLHosted, "metadata/saml20-sp-remote.php": simpleSAMLRemote} {
		s.write(name, []byte(text))
	}
	cmd := exec.Command(php, "-d", "error_reporting=0", "-S", "127.0.0.1:0", "-t", simpleSAMLDir)
	cmd.Env = append(os.Environ(), "SIMPLESAMLPHP_CONFIG_DIR="+filepath.Join(s.dir, "config"), "FAIRLEAD_SSP="+s.dir)
	s.run(cmd)
	return s
}

// run starts the program and reads its log until the test ends.
func (s *simpleSAML) run(cmd *exec.Cmd) {
	s.Helper()
	stderr, err := cmd.StderrPipe()
	must.Succeed(s, err)
	must.Succeed(s, cmd.Start())
	port, done := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			_, _ = io.WriteString(&s.log, lines.Text()+"\n")
			if m := phpStarted.FindStringSubmatch(lines.Text()); m != nil {
				port <- m[1]
			}
		}
	}()
	s.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
		if s.Failed() {
			s.Logf("SimpleSAMLphp:\n%s", s.log.String())
		}
	})
	select {
	case p := <-port:
		s.url = "http://simplesaml.localhost:" + p
	case <-done:
		s.Fatalf("php did not start: %s", s.log.String())
	case <-time.After(maxWait):
		s.Fatal("php did not start")
	}
}

func (s *simpleSAML) write(name string, b []byte) {
	s.Helper()
	must.Succeed(s, os.WriteFile(filepath.Join(s.dir, name), b, 0o600))
}

// key writes a new signing key and its certificate.
func (s *simpleSAML) key() {
	s.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must.Succeed(s, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "simplesaml"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(s, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(s, err)
	s.write("idp.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	s.write("idp.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

// certificate returns the certificate in base64; a service provider may use it, too.
func (s *simpleSAML) certificate() string {
	s.Helper()
	raw, err := os.ReadFile(filepath.Join(s.dir, "idp.crt"))
	must.Succeed(s, err)
	block, _ := pem.Decode(raw)
	return base64.StdEncoding.EncodeToString(block.Bytes)
}

// register adds a service provider to s; more are further fields of saml20-sp-remote.
func (s *simpleSAML) register(name, entityID, acs string, more map[string]any) {
	s.Helper()
	sp := map[string]any{"entityid": entityID, "AssertionConsumerService": acs,
		"NameIDFormat":          "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent",
		"saml20.sign.assertion": true, "saml20.sign.response": true}
	for k, v := range more {
		sp[k] = v
	}
	b, err := json.Marshal(sp)
	must.Succeed(s, err)
	s.write("sp/"+name+".json", b)
}

// initiateURL returns the URL of an IdP-initiated login.
func (s *simpleSAML) initiateURL(entityID string) string {
	return s.url + "/saml2/idp/SSOService.php?spentityid=" + entityID
}
