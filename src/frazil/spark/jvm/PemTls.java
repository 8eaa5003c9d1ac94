package frazil;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import org.apache.iceberg.rest.auth.TLSConfigurer;

/** Certificates of the connection to a REST catalog, from PEM files. What is not given is Java's own. */
public final class PemTls implements TLSConfigurer {
  private static final Pattern KEY = Pattern.compile("-----BEGIN PRIVATE KEY-----(.+?)-----END PRIVATE KEY-----", Pattern.DOTALL);
  private static final String[] ALGORITHMS = {"RSA", "EC", "Ed25519"};
  private static final char[] IN_MEMORY = new char[0];

  private Map<String, String> properties = Map.of();

  /** Made by Iceberg, which finds it by its name. */
  public PemTls() {}

  @Override
  public void initialize(Map<String, String> properties) {
    this.properties = properties;
  }

  @Override
  public SSLContext sslContext() {
    try {
      SSLContext context = SSLContext.getInstance("TLS");
      context.init(ownCertificate(), trusted(), null);
      return context;
    } catch (NoSuchFileException missing) {
      // Without its cause, whose message is the name alone.
      throw new IllegalArgumentException("The TLS file " + missing.getMessage() + " is not there");
    } catch (IOException | GeneralSecurityException bad) {
      throw new IllegalArgumentException("The TLS files cannot be used: " + bad.getMessage(), bad);
    }
  }

  private TrustManager[] trusted() throws IOException, GeneralSecurityException {
    String file = properties.get("frazil.tls.ca-path");
    if (file == null) {
      return null;
    }
    KeyStore store = emptyStore();
    int number = 0;
    for (Certificate one : certificates(file)) {
      store.setCertificateEntry("authority-" + number++, one);
    }
    TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    factory.init(store);
    return factory.getTrustManagers();
  }

  private KeyManager[] ownCertificate() throws IOException, GeneralSecurityException {
    String file = properties.get("frazil.tls.cert-path");
    if (file == null) {
      return null;
    }
    KeyStore store = emptyStore();
    Certificate[] chain = certificates(file).toArray(new Certificate[0]);
    store.setKeyEntry("own", key(properties.get("frazil.tls.key-path")), IN_MEMORY, chain);
    KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
    factory.init(store, IN_MEMORY);
    return factory.getKeyManagers();
  }

  private static KeyStore emptyStore() throws IOException, GeneralSecurityException {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, IN_MEMORY);
    return store;
  }

  private static Collection<? extends Certificate> certificates(String file) throws IOException, GeneralSecurityException {
    try (InputStream pem = Files.newInputStream(Path.of(file))) {
      Collection<? extends Certificate> found = CertificateFactory.getInstance("X.509").generateCertificates(pem);
      if (found.isEmpty()) {
        throw new GeneralSecurityException(file + " has no certificate in it");
      }
      return found;
    }
  }

  private static PrivateKey key(String file) throws IOException, GeneralSecurityException {
    Matcher pem = KEY.matcher(Files.readString(Path.of(file), StandardCharsets.US_ASCII));
    if (!pem.find()) {
      throw new GeneralSecurityException(file + " has no plain PKCS 8 key in it; openssl pkcs8 -topk8 -nocrypt makes one");
    }
    PKCS8EncodedKeySpec encoded = new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(pem.group(1)));
    for (String algorithm : ALGORITHMS) {
      try {
        return KeyFactory.getInstance(algorithm).generatePrivate(encoded);
      } catch (InvalidKeySpecException other) {
        continue;
      }
    }
    throw new GeneralSecurityException("the key in " + file + " is of none of the kinds RSA, EC and Ed25519");
  }
}
